#include "tensor/cpu/huge_page_source.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "tensor/error.h"

namespace tensor::cpu {

namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}

// mmap aligns to 4 KiB: map one huge page more, and give back what sticks out on both sides.
void* HugePageSource::map(int64_t bytes) {
  const size_t wanted = static_cast<size_t>(bytes);
  void* mapped = mmap(nullptr, wanted + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    throw InternalError(
        fmt::format("cpu: mapping {} bytes ({:.2f} GiB) of memory failed: {}.\n"
                    "  The system has no room for this model, micro-batch and number of ranks.\n"
                    "  Fix: lower train.micro_batch_size, turn on train.recompute, use more ranks or a larger machine, "
                    "or raise the limit that `ulimit -v` shows.",
                    bytes, static_cast<double>(bytes) * 0x1p-30, std::strerror(errno)));
  }
  char* begin = static_cast<char*>(mapped);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  const size_t after = kHugePage - before;
  if (before > 0) munmap(begin, before);
  if (after > 0) munmap(begin + before + wanted, after);
  madvise(begin + before, wanted, MADV_HUGEPAGE);  // a wish: without huge pages all works, slower
  return begin + before;
}

void HugePageSource::unmap(void* data, int64_t bytes) { munmap(data, static_cast<size_t>(bytes)); }

}  // namespace tensor::cpu
