#include "tensor/cpu/column_sums.h"

#include "tensor/cpu/convert.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/threads.h"
#include "tensor/device.h"

namespace tensor::cpu {

namespace {

constexpr int64_t kUnrolledRows = 4;  // a sum is loaded and stored once for so many rows

template <class T>
void add_rows(const T* x, int64_t rows, int64_t row_stride, double* sums, int64_t columns) {
  int64_t row = 0;
  for (; row + kUnrolledRows <= rows; row += kUnrolledRows) {
    const T* from = x + row * row_stride;
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) {
      double sum = sums[i];
      for (int64_t r = 0; r < kUnrolledRows; ++r) sum += static_cast<double>(load(from[r * row_stride + i]));
      sums[i] = sum;
    }
  }
  for (; row < rows; ++row) {
    const T* from = x + row * row_stride;
#pragma omp simd
    for (int64_t i = 0; i < columns; ++i) sums[i] += static_cast<double>(load(from[i]));
  }
}

template <class T>
void store_sums(const double* sums, T* to, int64_t columns, Write write) {
  for (int64_t i = 0; i < columns; ++i) {
    const double before = write == Write::accumulate ? static_cast<double>(load(to[i])) : 0.0;
    store(to[i], static_cast<compute_t<T>>(before + sums[i]));
  }
}

}  // namespace

void column_sums(const Tensor& x, Tensor& sums, Write write) {
  const int64_t rows = x.dim(0), columns = x.shape().row_numel();
  CHECK(sums.numel() == columns, "{} sums of the columns of {}", sums.numel(), x.shape().str());
  Tensor wide = x.device().allocate({columns}, Dtype::fp64, MemoryCategory::workspace);
  x.device().zero(wide);
  double* wide_sums = wide.data<double>();
  dispatch(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    parallel_for(columns, kColumnsPerThread, [&](int64_t begin, int64_t end) {
      add_rows(from + begin, rows, x.row_stride(), wide_sums + begin, end - begin);
    });
  });
  dispatch(sums.dtype(), [&]<class T>() { store_sums(wide_sums, sums.data<T>(), columns, write); });
}

}  // namespace tensor::cpu
