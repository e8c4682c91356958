#include <cmath>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/threads.h"

namespace tensor::cpu {

namespace {

/// What the two parts of a softmax over all keys weigh, and the logarithm of its sum.
template <class C>
struct MergeWeights {
  MergeWeights(C first_lse, C second_lse) {
    const C highest = std::max(first_lse, second_lse);
    if (highest == -std::numeric_limits<C>::infinity()) return;  // nothing seen: both parts are 0, and stay so
    const C first_sum = std::exp(first_lse - highest), second_sum = std::exp(second_lse - highest);
    const C sum = first_sum + second_sum;
    lse = highest + std::log(sum);
    first = first_sum / sum;
    second = second_sum / sum;
  }

  C lse = -std::numeric_limits<C>::infinity();
  C first = 0, second = 0;
};

}  // namespace

void CpuOps::merge_attention(const Tensor& block_o, const Tensor& block_lse, Tensor& o, Tensor& lse) {
  CHECK(block_o.shape() == o.shape() && block_lse.numel() == lse.numel() && lse.numel() == o.dim(0) * o.dim(1),
        "outputs {} and {} have the same heads as {} sums", block_o.shape().str(), o.shape().str(), lse.numel());
  dispatch(block_o.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const int64_t head_dim = o.dim(2);
    const T* const from = block_o.data<T>();
    const C* const from_lse = block_lse.data<C>();
    C* const to = o.data<C>();
    C* const to_lse = lse.data<C>();
    parallel_for_rows(lse.numel(), head_dim, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const MergeWeights<C> weights(to_lse[row], from_lse[row]);
        to_lse[row] = weights.lse;
#pragma omp simd
        for (int64_t c = row * head_dim; c < (row + 1) * head_dim; ++c) {
          to[c] = weights.first * to[c] + weights.second * load(from[c]);
        }
      }
    });
  });
}

}  // namespace tensor::cpu
