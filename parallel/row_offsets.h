#pragma once
/// Where the rows of each rank lie in a tensor that holds those of all ranks.

#include <vector>

#include "tensor/tensor.h"

namespace parallel {

/// First element of the rows of each rank; one more entry than ranks. CHECKs that `rows` has an entry for each of
/// `size` ranks and adds up to the rows of x.
std::vector<int64_t> row_offsets(const std::vector<int64_t>& rows, int size, const tensor::Tensor& x);

/// The same, where `part` is the rows of `rank` in `whole`.
std::vector<int64_t> part_offsets(const std::vector<int64_t>& rows, int rank, int size, const tensor::Tensor& part,
                                  const tensor::Tensor& whole);

}  // namespace parallel
