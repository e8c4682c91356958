#include <algorithm>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/threads.h"

namespace tensor::cpu {

namespace {

template <class From, class To>
void add_to(const From* x, To* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(y[i], load(y[i]) + static_cast<compute_t<To>>(load(x[i])));
}

/// One token: row `row` of the table, or 0 where another rank owns it.
template <class T>
void embed(const Tensor& table, int64_t row, T* y, int64_t hidden, Write write) {
  const bool is_ours = 0 <= row && row < table.dim(0);
  const T* from = is_ours ? table.data<T>() + row * table.row_stride() : nullptr;
  if (is_ours && write == Write::accumulate) {
    add_to(from, y, hidden);
  } else if (is_ours) {
    std::copy_n(from, hidden, y);
  } else if (write == Write::overwrite) {
    std::fill_n(y, hidden, T{});
  }
}

}  // namespace

void CpuOps::embedding(const Tensor& indices, const Tensor& table, int64_t first_row, Tensor& y, Write write) {
  const int64_t tokens = indices.dim(0), hidden = y.shape().row_numel();
  CHECK(y.dim(0) == tokens && table.dim(1) == hidden, "{} rows of {} become {}", tokens, table.shape().str(),
        y.shape().str());
  const int32_t* index = indices.data<int32_t>();
  dispatch(y.dtype(), [&]<class T>() {
    T* to = y.data<T>();
    parallel_for_rows(tokens, hidden, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        embed<T>(table, index[t] - first_row, to + t * y.row_stride(), hidden, write);
    });
  });
}

// Threads share the columns out: each sees all tokens in order, so every row sums in token order whatever the number
// of threads, and no index keeps one thread busier than another.
void CpuOps::embedding_backward(const Tensor& indices, const Tensor& dy, int64_t first_row, Tensor& dtable,
                                Write write) {
  const int64_t tokens = indices.dim(0), hidden = dy.shape().row_numel(), rows = dtable.dim(0);
  CHECK(dy.dim(0) == tokens && dtable.dim(1) == hidden, "{} rows of {} come from {}", tokens, dtable.shape().str(),
        dy.shape().str());
  if (write == Write::overwrite) device().zero(dtable);
  const int32_t* index = indices.data<int32_t>();
  dispatch(dy.dtype(), [&]<class From>() {
    dispatch(dtable.dtype(), [&]<class To>() {
      const From* from = dy.data<From>();
      To* to = dtable.data<To>();
      parallel_for(hidden, kColumnsPerThread, [&](int64_t begin, int64_t end) {
        for (int64_t t = 0; t < tokens; ++t) {
          const int64_t row = index[t] - first_row;
          if (row < 0 || row >= rows) continue;
          add_to(from + t * dy.row_stride() + begin, to + row * dtable.row_stride() + begin, end - begin);
        }
      });
    });
  });
}

}  // namespace tensor::cpu
