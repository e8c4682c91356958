#include <cblas.h>

#include <limits>

#include "tensor/cpu/column_sums.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/runs.h"

namespace tensor::cpu {

namespace {

/// What BLAS computes a product in: the widest operand decides, and bf16 counts as fp32.
Dtype product_dtype(const Tensor& a, const Tensor& b, const Tensor& c) {
  const bool has_fp64 = a.dtype() == Dtype::fp64 || b.dtype() == Dtype::fp64 || c.dtype() == Dtype::fp64;
  return has_fp64 ? Dtype::fp64 : Dtype::fp32;
}

/// `x` itself where it has the dtype already, else a copy.
Tensor converted(Ops& ops, const Tensor& x, Dtype dtype) {
  if (x.dtype() == dtype) return x.view();
  Tensor copy = ops.device().allocate(x.shape(), dtype, MemoryCategory::workspace);
  ops.cast(x, copy);
  return copy;
}

blasint blas_int(int64_t size) {
  CHECK(size <= std::numeric_limits<blasint>::max(), "a matrix of {} rows or columns is too large for BLAS", size);
  return static_cast<blasint>(size);
}

blasint leading_dimension(const Tensor& x) {
  return blas_int(std::max({int64_t{1}, x.shape().row_numel(), x.row_stride()}));
}

struct Product {
  int64_t m, n, k;
  CBLAS_TRANSPOSE transpose_a, transpose_b;
};

void multiply(const Product& p, const Tensor& a, const Tensor& b, Tensor& c, double beta) {
  const blasint m = blas_int(p.m), n = blas_int(p.n), k = blas_int(p.k);
  const blasint lda = leading_dimension(a), ldb = leading_dimension(b), ldc = leading_dimension(c);
  if (c.dtype() == Dtype::fp64) {
    cblas_dgemm(CblasRowMajor, p.transpose_a, p.transpose_b, m, n, k, 1.0, a.data<double>(), lda, b.data<double>(), ldb,
                beta, c.data<double>(), ldc);
  } else {
    cblas_sgemm(CblasRowMajor, p.transpose_a, p.transpose_b, m, n, k, 1.0f, a.data<float>(), lda, b.data<float>(), ldb,
                static_cast<float>(beta), c.data<float>(), ldc);
  }
}

Product product_of(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b, const Tensor& c) {
  const bool is_a_transposed = transpose_a == Transpose::yes, is_b_transposed = transpose_b == Transpose::yes;
  const int64_t a_rows = a.dim(0), a_columns = a.shape().row_numel();
  const int64_t b_rows = b.dim(0), b_columns = b.shape().row_numel();
  const Product p{.m = is_a_transposed ? a_columns : a_rows,
                  .n = is_b_transposed ? b_rows : b_columns,
                  .k = is_a_transposed ? a_rows : a_columns,
                  .transpose_a = is_a_transposed ? CblasTrans : CblasNoTrans,
                  .transpose_b = is_b_transposed ? CblasTrans : CblasNoTrans};
  CHECK((is_b_transposed ? b_columns : b_rows) == p.k && c.dim(0) == p.m && c.shape().row_numel() == p.n,
        "{}{} * {}{} = {}", a.shape().str(), is_a_transposed ? "^T" : "", b.shape().str(), is_b_transposed ? "^T" : "",
        c.shape().str());
  return p;
}

/// Every row of y becomes `bias`.
void fill_rows(const Tensor& bias, Tensor& y) {
  const int64_t out = y.shape().row_numel();
  CHECK(bias.numel() == out && bias.dtype() == y.dtype(), "bias {} {} is added to rows of {} {}",
        to_string(bias.dtype()), bias.shape().str(), to_string(y.dtype()), y.shape().str());
  dispatch(y.dtype(), [&]<class T>() {
    const T* from = bias.data<T>();
    T* to = y.data<T>();
    parallel_for_rows(y.dim(0), out, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) std::copy_n(from, out, to + row * y.row_stride());
    });
  });
}

}  // namespace

void CpuOps::gemm(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b, Tensor& c,
                  Write write) {
  const Product product = product_of(a, transpose_a, b, transpose_b, c);
  if (product.m == 0 || product.n == 0) return;
  if (product.k == 0) {
    if (write == Write::overwrite) device().zero(c);
    return;
  }
  const Dtype dtype = product_dtype(a, b, c);
  const Tensor wide_a = converted(*this, a, dtype), wide_b = converted(*this, b, dtype);
  const double beta = write == Write::accumulate ? 1 : 0;
  if (c.dtype() == dtype) return multiply(product, wide_a, wide_b, c, beta);

  Tensor wide_c = device().allocate(c.shape(), dtype, MemoryCategory::workspace);
  if (write == Write::accumulate) cast(c, wide_c);
  multiply(product, wide_a, wide_b, wide_c, beta);
  cast(wide_c, c);
}

// The bias goes in first: BLAS would fill y with zeros at that point, so it costs nothing.
void CpuOps::linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) {
  if (bias) fill_rows(bias, y);
  gemm(x, Transpose::no, weight, Transpose::yes, y, bias ? Write::accumulate : Write::overwrite);
}

void CpuOps::linear_backward_input(const Tensor& dy, const Tensor& weight, Tensor& dx, Write write) {
  gemm(dy, Transpose::no, weight, Transpose::no, dx, write);
}

void CpuOps::linear_backward_weight(const Tensor& dy, const Tensor& x, Tensor& dweight, Tensor& dbias, Write write) {
  gemm(dy, Transpose::yes, x, Transpose::no, dweight, write);
  if (dbias) column_sums(dy, dbias, write);
}

}  // namespace tensor::cpu
