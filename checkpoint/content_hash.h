#pragma once
/// XXH3-64: finds any accidental change, at memory speed. Not a signature: it does not stop a forger.

#include <cstdint>
#include <span>

#include "checkpoint/state.h"

namespace checkpoint {

uint64_t hash_bytes(const void* data, int64_t bytes);

struct HashedTensor {
  TensorInfo info;
  uint64_t hash = 0;  ///< of its bytes in row-major order
};

/// One number for all a checkpoint means. `tensors` in order of name.
uint64_t hash_contents(const RunInfo& info, std::span<const HashedTensor> tensors);

}  // namespace checkpoint
