#pragma once
/// Loops over threads whose results cannot depend on the number of threads.

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace tensor::cpu {

/// Elements one thread should have at least, so that waking it up pays (about 5 us).
constexpr int64_t kElementsPerThread = 16 * 1024;

/// Columns of a matrix that one thread should have at least where threads share out columns: four cache lines.
constexpr int64_t kColumnsPerThread = 64;

/// Calls body(begin, end) for adjoining pieces of [0, n), one per thread. Every piece begins at a multiple of `grain`,
/// so that which elements fall into the vector part of a loop and which into its remainder does not depend on the
/// number of threads. The body must not throw.
template <class Body>
void parallel_for(int64_t n, int64_t grain, const Body& body) {
  if (n <= 0) return;
  const int64_t num_grains = (n + grain - 1) / grain;
  const int num_threads = static_cast<int>(std::min<int64_t>(omp_get_max_threads(), num_grains));
  if (num_threads <= 1 || omp_in_parallel()) {
    body(int64_t{0}, n);
    return;
  }
#pragma omp parallel num_threads(num_threads)
  {
    const int64_t rank = omp_get_thread_num(), size = omp_get_num_threads();
    const int64_t begin = num_grains * rank / size * grain;
    const int64_t end = std::min(n, num_grains * (rank + 1) / size * grain);
    if (begin < end) body(begin, end);
  }
}

/// The same over rows of `row_numel` elements each: a row is never split.
template <class Body>
void parallel_for_rows(int64_t rows, int64_t row_numel, const Body& body) {
  parallel_for(rows, std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(1, row_numel)), body);
}

}  // namespace tensor::cpu
