#pragma once
/// The arithmetic of reductions, in an order that depends on nothing but rank.

#include <vector>

#include "parallel/communicator.h"

namespace parallel {

/// to[i] = parts[0][i] (op) parts[1][i] (op) ..., from the left, in host memory. bf16 is reduced in fp32 and rounded
/// once. `to` may be one of the parts. A maximum with a NaN is NaN.
void reduce_in_rank_order(const std::vector<const void*>& parts, int64_t count, tensor::Dtype dtype,
                          Reduction reduction, void* to);

}  // namespace parallel
