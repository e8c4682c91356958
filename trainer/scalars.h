#pragma once
/// Reductions of a few host numbers over a group.

#include <array>
#include <cstdint>
#include <span>

#include "parallel/communicator.h"

namespace trainer {

double all_reduce_scalar(parallel::Communicator& group, tensor::Device& device, double x,
                         parallel::Reduction reduction);
void all_reduce_sums(parallel::Communicator& group, tensor::Device& device, std::span<double> x);
void all_reduce_integers(parallel::Communicator& group, tensor::Device& device, std::span<int64_t> x,
                         parallel::Reduction reduction = parallel::Reduction::sum);

}  // namespace trainer
