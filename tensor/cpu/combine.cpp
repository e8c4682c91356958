#include "tensor/cpu/convert.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/threads.h"

namespace tensor::cpu {

namespace {

void check_places(const Tensor& from, const Tensor& places, const Tensor& y) {
  CHECK(y.dim(0) == places.dim(0) && y.dim(1) == from.dim(1), "{} is combined from {} at {}", y.shape().str(),
        from.shape().str(), places.shape().str());
}

/// y [hidden] = sum of the rows at places [k].
template <class T>
void combine_token(const Tensor& from, const int32_t* places, const compute_t<T>* weights, int64_t k, T* y) {
  using C = compute_t<T>;
  constexpr int64_t kBlock = 64;  // sums in registers, rounded once
  const int64_t hidden = from.dim(1);
  for (int64_t begin = 0; begin < hidden; begin += kBlock) {
    C sum[kBlock] = {};
    const int64_t n = std::min(kBlock, hidden - begin);
    for (int64_t j = 0; j < k; ++j) {
      if (places[j] < 0) continue;
      const T* row = from.data<T>() + places[j] * from.row_stride() + begin;
      const C weight = weights ? weights[j] : C{1};
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) sum[i] += weight * load(row[i]);
    }
    for (int64_t i = 0; i < n; ++i) store(y[begin + i], sum[i]);
  }
}

/// drow = weight * dy; -> <dy, row>
template <class T>
compute_t<T> combine_row_backward(const T* dy, const T* row, compute_t<T> weight, T* drow, int64_t hidden) {
  compute_t<T> dot = 0;
  for (int64_t i = 0; i < hidden; ++i) {
    dot += load(dy[i]) * load(row[i]);
    store(drow[i], weight * load(dy[i]));
  }
  return dot;
}

}  // namespace

void CpuOps::combine(const Tensor& from, const Tensor& places, const Tensor& weights, Tensor& y) {
  check_places(from, places, y);
  const int64_t k = places.dim(1);
  dispatch(y.dtype(), [&]<class T>() {
    const compute_t<T>* weight = weights ? weights.data<compute_t<T>>() : nullptr;
    parallel_for_rows(y.dim(0), k * y.dim(1), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        combine_token<T>(from, places.data<int32_t>() + t * k, weight ? weight + t * k : nullptr, k,
                         y.data<T>() + t * y.row_stride());
      }
    });
  });
}

void CpuOps::combine_backward(const Tensor& dy, const Tensor& from, const Tensor& places, const Tensor& weights,
                              Tensor& dfrom, Tensor& dweights) {
  check_places(from, places, dy);
  const int64_t k = places.dim(1), hidden = from.dim(1);
  dispatch(dy.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    parallel_for_rows(dy.dim(0), k * hidden, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin * k; slot < end * k; ++slot) {
        const int32_t place = places.data<int32_t>()[slot];
        dweights.data<C>()[slot] =
            place < 0 ? C{0}
                      : combine_row_backward(dy.data<T>() + slot / k * dy.row_stride(),
                                             from.data<T>() + place * from.row_stride(), weights.data<C>()[slot],
                                             dfrom.data<T>() + place * dfrom.row_stride(), hidden);
      }
    });
  });
}

}  // namespace tensor::cpu
