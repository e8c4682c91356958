#pragma once
/// Shorthand for the tensors a layer makes.

#include "tensor/ops.h"

namespace model {

/// An activation with the dtype of `like`.
inline tensor::Tensor activation_like(const tensor::Tensor& like, tensor::Shape shape) {
  return like.device().allocate(shape, like.dtype(), tensor::MemoryCategory::activations);
}

/// Statistics of a tensor (norm deviations, log-sum-exp): fp32, or fp64 for fp64.
inline tensor::Tensor statistics_like(const tensor::Tensor& like, tensor::Shape shape) {
  return like.device().allocate(shape, accumulator_of(like.dtype()), tensor::MemoryCategory::activations);
}

}  // namespace model
