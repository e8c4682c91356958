#include "tensor/cuda/matmul.h"

#include <algorithm>
#include <memory>
#include <type_traits>

#include "tensor/cuda/check.h"

namespace tensor::cuda {
namespace {

template <class T, cublasStatus_t (*kDestroy)(T)>
struct Destroy {
  void operator()(T object) const { kDestroy(object); }
};
template <class T, cublasStatus_t (*kDestroy)(T)>
using Owner = std::unique_ptr<std::remove_pointer_t<T>, Destroy<T, kDestroy>>;

using Layout = Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Operation = Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t data_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return CUDA_R_32F;
    case Dtype::bf16:
      return CUDA_R_16BF;
    case Dtype::fp64:
      return CUDA_R_64F;
    default:
      CHECK(false, "{} has no matrix product", to_string(dtype));
  }
}

/// cuBLAS is column-major: to it, a row-major matrix [rows, columns] is its transpose, with `row_stride` between
/// columns.
Layout layout_of(const Tensor& x) {
  const int64_t leading = std::max(x.row_stride(), x.dim(1));
  cublasLtMatrixLayout_t layout = nullptr;
  CUBLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, data_type(x.dtype()), static_cast<uint64_t>(x.dim(1)),
                                          static_cast<uint64_t>(x.dim(0)), leading));
  return Layout(layout);
}

Operation operation_for(Dtype accumulator, Transpose first, Transpose second) {
  const bool is_fp64 = accumulator == Dtype::fp64;
  cublasLtMatmulDesc_t operation = nullptr;
  CUBLAS_CHECK(cublasLtMatmulDescCreate(&operation, is_fp64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                        is_fp64 ? CUDA_R_64F : CUDA_R_32F));
  Operation owner(operation);
  const cublasOperation_t ops[2] = {first == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N,
                                    second == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N};
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &ops[0], sizeof ops[0]));
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &ops[1], sizeof ops[1]));
  return owner;
}

/// The largest power of two up to 256 that divides the address: views begin anywhere, kernels are chosen by this.
uint32_t alignment_of(const Tensor& x) {
  const auto address = reinterpret_cast<uintptr_t>(x.raw()) | 256u;
  return static_cast<uint32_t>(address & (~address + 1));
}

void set_attribute(const Preference& preference, cublasLtMatmulPreferenceAttributes_t name, const void* value,
                   size_t bytes) {
  CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(preference.get(), name, value, bytes));
}

/// `first` and `second` in cuBLAS's order.
Preference preference_for(const Tensor& first, const Tensor& second, const Tensor& c, uint64_t workspace_bytes) {
  cublasLtMatmulPreference_t created = nullptr;
  CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&created));
  Preference preference(created);
  const uint32_t alignments[3] = {alignment_of(first), alignment_of(second), alignment_of(c)};
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes);
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignments[0], sizeof(uint32_t));
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignments[1], sizeof(uint32_t));
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignments[2], sizeof(uint32_t));
  set_attribute(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignments[2], sizeof(uint32_t));
  return preference;
}

void zero(Tensor& c, const Stream& stream) {
  const size_t width = static_cast<size_t>(c.dim(1) * size_of(c.dtype()));
  const size_t pitch = static_cast<size_t>(c.row_stride() * size_of(c.dtype()));
  CUDA_CHECK(cudaMemset2DAsync(c.raw(), std::max(pitch, width), 0, width, static_cast<size_t>(c.dim(0)), stream.get()));
}

}  // namespace

Matmul::Matmul(Pool& pool) : workspace_(pool.allocate(kWorkspaceBytes, MemoryCategory::workspace)) {
  CUBLAS_CHECK(cublasLtCreate(&handle_));
}

Matmul::~Matmul() { cublasLtDestroy(handle_); }

void Matmul::gemm(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b, Tensor& c,
                  Write write, const Stream& stream) {
  const int64_t k = a.dim(transpose_a == Transpose::yes ? 0 : 1);
  CHECK(k == b.dim(transpose_b == Transpose::yes ? 1 : 0), "inner dims of {} and {} agree", a.shape().str(),
        b.shape().str());
  CHECK(a.dtype() == b.dtype(), "factors share a dtype: {} and {}", to_string(a.dtype()), to_string(b.dtype()));
  if (c.numel() == 0) return;
  if (k == 0) {
    if (write == Write::overwrite) zero(c, stream);
    return;
  }

  // Column-major c^T = op(b)^T op(a)^T: the operands change places and nothing is transposed.
  const Layout layout_b = layout_of(b), layout_a = layout_of(a), layout_c = layout_of(c);
  const Operation operation = operation_for(accumulator_of(a.dtype()), transpose_b, transpose_a);
  const Preference preference = preference_for(b, a, c, kWorkspaceBytes);
  cublasLtMatmulHeuristicResult_t chosen{};
  int num_chosen = 0;
  CUBLAS_CHECK(cublasLtMatmulAlgoGetHeuristic(handle_, operation.get(), layout_b.get(), layout_a.get(), layout_c.get(),
                                              layout_c.get(), preference.get(), 1, &chosen, &num_chosen));
  CHECK(num_chosen == 1, "cuBLASLt has a kernel for {} x {} in {}", a.shape().str(), b.shape().str(),
        to_string(a.dtype()));

  // alpha and beta are read in the accumulator's type.
  const double ones[2] = {1, write == Write::accumulate ? 1.0 : 0.0};
  const float ones_fp32[2] = {1, static_cast<float>(ones[1])};
  const bool is_fp64 = a.dtype() == Dtype::fp64;
  const void* alpha = is_fp64 ? static_cast<const void*>(&ones[0]) : &ones_fp32[0];
  const void* beta = is_fp64 ? static_cast<const void*>(&ones[1]) : &ones_fp32[1];
  CUBLAS_CHECK(cublasLtMatmul(handle_, operation.get(), alpha, b.raw(), layout_b.get(), a.raw(), layout_a.get(), beta,
                              c.raw(), layout_c.get(), c.raw(), layout_c.get(), &chosen.algo, workspace_.data(),
                              static_cast<size_t>(workspace_.bytes()), stream.get()));
}

}  // namespace tensor::cuda
