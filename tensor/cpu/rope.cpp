#include "tensor/cpu/convert.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/threads.h"

namespace tensor::cpu {

namespace {

template <class T>
void rotate(T* x, const compute_t<T>* cosine, const compute_t<T>* sine, compute_t<T> direction, int64_t half) {
  using C = compute_t<T>;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const C c = cosine[i], s = direction * sine[i];
    const C first = load(x[i]), second = load(x[i + half]);
    store(x[i], first * c - second * s);
    store(x[i + half], second * c + first * s);
  }
}

}  // namespace

void CpuOps::rope(Tensor& x, const Tensor& positions, const Tensor& table, Transpose transpose) {
  dispatch(x.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const int64_t tokens = x.dim(0), heads = x.dim(1), head_dim = x.dim(2), half = table.dim(1) / 2;
    const int64_t stride = x.row_stride();
    const C direction = transpose == Transpose::yes ? -1 : 1;
    T* const data = x.data<T>();
    const int32_t* const position = positions.data<int32_t>();
    const C* const angles = table.data<C>();
    parallel_for_rows(tokens, heads * head_dim, [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        const C* const cosine = angles + position[token] * table.row_stride();
        for (int64_t head = 0; head < heads; ++head) {
          rotate(data + token * stride + head * head_dim, cosine, cosine + half, direction, half);
        }
      }
    });
  });
}

}  // namespace tensor::cpu
