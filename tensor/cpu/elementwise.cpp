#include <cmath>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/dropout_mask.h"
#include "tensor/cpu/runs.h"

namespace tensor::cpu {

namespace {

template <class From, class To>
void cast_run(const From* x, To* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(y[i], static_cast<compute_t<To>>(load(x[i])));
}

template <class T>
void add_run(const T* a, const T* b, T* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(y[i], load(a[i]) + load(b[i]));
}

/// y = (kept ? x * scale : 0) + residual, for at most DropoutMask::kBlock features of one token.
template <class T>
void dropout_add_block(const uint32_t* random, const DropoutMask& mask, const T* x, const T* residual, T* y,
                       int64_t n) {
  using C = compute_t<T>;
  const C scale = static_cast<C>(mask.scale());
  const uint32_t threshold = mask.threshold();
  if (residual) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      store(y[i], (random[i] >= threshold ? load(x[i]) * scale : C{0}) + load(residual[i]));
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) store(y[i], random[i] >= threshold ? load(x[i]) * scale : C{0});
  }
}

template <class T>
void dropout_add_token(const DropoutMask& mask, int64_t token_index, const T* x, const T* residual, T* y, int64_t n) {
  alignas(64) uint32_t random[DropoutMask::kBlock];
  for (int64_t begin = 0; begin < n; begin += DropoutMask::kBlock) {
    mask.draw(token_index, begin, random);
    dropout_add_block(random, mask, x + begin, residual ? residual + begin : nullptr, y + begin,
                      std::min<int64_t>(DropoutMask::kBlock, n - begin));
  }
}

}  // namespace

void CpuOps::dropout_add(const Dropout& dropout, const Tensor& x, const Tensor& residual, const Tensor& token_index,
                         Tensor& y) {
  if (dropout.probability == 0) {
    if (residual) return add(x, residual, y);
    if (x.raw() != y.raw()) device().copy(x, y);
    return;
  }
  const DropoutMask mask(dropout);
  const int64_t tokens = x.dim(0), features = x.shape().row_numel();
  CHECK(y.shape() == x.shape() && token_index.numel() == tokens, "{} tokens have an index each, not {}", tokens,
        token_index.numel());
  const int64_t* index = token_index.data<int64_t>();
  dispatch(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    const T* add = residual ? residual.data<T>() : nullptr;
    T* to = y.data<T>();
    parallel_for_rows(tokens, features, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        dropout_add_token(mask, index[t], from + t * x.row_stride(), add ? add + t * residual.row_stride() : nullptr,
                          to + t * y.row_stride(), features);
      }
    });
  });
}

void CpuOps::add(const Tensor& a, const Tensor& b, Tensor& y) {
  dispatch(y.dtype(), [&]<class T>() {
    for_each_run(y, {&a, &b}, [&](const Run& run) { add_run(run.of<T>(a), run.of<T>(b), run.of<T>(y), run.size); });
  });
}

void CpuOps::cast(const Tensor& x, Tensor& y) {
  if (x.dtype() == y.dtype()) return device().copy(x, y);
  dispatch(x.dtype(), [&]<class From>() {
    dispatch(y.dtype(), [&]<class To>() {
      for_each_run(y, {&x}, [&](const Run& run) { cast_run(run.of<From>(x), run.of<To>(y), run.size); });
    });
  });
}

}  // namespace tensor::cpu
