#pragma once
/// The launchers of our kernels: raw pointers and sizes, already checked by ops.cpp. Dtypes are the floating ones.
/// Nothing here includes Tensor, so that nvcc compiles little.

#include <cuda_runtime.h>

#include <cstdint>

#include "tensor/dtype.h"

namespace tensor::cuda {

/// A matrix whose rows lie `row_stride` elements apart.
struct Rows {
  void* data;
  int64_t row_stride;
};

/// y = a + b, [rows, columns].
void launch_add(Dtype dtype, Rows a, Rows b, Rows y, int64_t rows, int64_t columns, cudaStream_t stream);

/// y = x in y's dtype, [numel].
void launch_cast(Dtype from, const void* x, Dtype to, void* y, int64_t numel, cudaStream_t stream);

/// x and y [tokens, groups, features]: groups and features contiguous, tokens apart. Each group is normalised by
/// itself.
struct NormLaunch {
  Rows x, y;
  const void* weight;  ///< [features]
  const void* bias;    ///< [features] or null
  void* stats;         ///< acc [tokens * groups, 2]
  int64_t tokens, groups, features;
  double eps;
  bool is_layer_norm;
};
void launch_norm(Dtype dtype, const NormLaunch& norm, cudaStream_t stream);

/// AdamW with what depends on the step alone already computed.
struct AdamWLaunch {
  double grad_scale, beta1, beta2, eps;
  double step_size;        ///< lr / (1 - beta1^step)
  double inv_correction2;  ///< 1 / sqrt(1 - beta2^step)
  double decay;            ///< 1 - lr * weight_decay
};
/// grad, master, exp_avg, exp_avg_sq in `dtype` (fp32 or fp64); value in `value_dtype`, or null. All [numel].
struct AdamWBuffers {
  const void* grad;
  void *master, *exp_avg, *exp_avg_sq, *value;
  int64_t numel;
};
void launch_adamw(Dtype dtype, Dtype value_dtype, const AdamWLaunch& adamw, const AdamWBuffers& buffers,
                  cudaStream_t stream);

}  // namespace tensor::cuda
