#pragma once
/// Matrix products through cuBLASLt, for row-major operands whose rows may lie apart.

#include <cublasLt.h>

#include "tensor/cuda/stream.h"
#include "tensor/ops.h"

namespace tensor::cuda {

class Matmul {
 public:
  explicit Matmul(Pool& pool);  ///< takes its workspace from the pool
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  /// c [m, n] (+)= op(a) [m, k] * op(b) [k, n], queued on `stream`. fp32 and bf16 accumulate in fp32 (no TF32), fp64 in
  /// fp64; c may be fp32 for bf16 factors. One stream at a time: the workspace is shared.
  void gemm(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b, Tensor& c, Write write,
            const Stream& stream);

 private:
  static constexpr int64_t kWorkspaceBytes = 32 << 20;  // what cuBLAS advises for Hopper

  cublasLtHandle_t handle_ = nullptr;
  PoolBlock workspace_;
};

}  // namespace tensor::cuda
