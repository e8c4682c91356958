#pragma once
/// Tolerances from dtype and the length of the sum, never from what makes a test pass.

#include <cmath>

#include "tensor/dtype.h"

namespace tests {

/// Distance from 1 to the next number of the type.
inline double epsilon(tensor::Dtype dtype) {
  switch (dtype) {
    case tensor::Dtype::fp64:
      return 0x1p-52;
    case tensor::Dtype::bf16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

/// Bound on |computed - exact| for a sum of `length` products whose absolute values add up to `magnitude`, computed in
/// any order. Rounding errors of unbiased rounding grow as sqrt(length) (Higham & Mary 2019); 8 covers the tail.
/// bf16 tensors are summed in fp32 and rounded once.
inline double sum_tolerance(tensor::Dtype dtype, double length, double magnitude) {
  const bool is_bf16 = dtype == tensor::Dtype::bf16;
  const double unit = is_bf16 ? 0x1p-23 : epsilon(dtype);
  return magnitude * (8 * unit * std::sqrt(length + 1) + (is_bf16 ? 0x1p-8 : 0));
}

}  // namespace tests
