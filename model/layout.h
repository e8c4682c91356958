#pragma once
/// Whether a model can be shared out over a mesh: what only the shape of the model says about a layout.

#include <vector>

#include "model/config.h"
#include "parallel/layout.h"
#include "parallel/tensor_parallel.h"

namespace model {

/// Every reason why the tensor-parallel ranks of these degrees cannot share the model out; each names what would work.
std::vector<parallel::LayoutProblem> layout_problems(const ModelConfig& config, const parallel::Degrees& degrees,
                                                     parallel::TokenSharding tokens);

}  // namespace model
