#pragma once
/// Whether a model can be shared out over a mesh: what only the shape of the model says about a layout.

#include <vector>

#include "model/config.h"
#include "parallel/config.h"
#include "parallel/layout.h"
#include "parallel/tensor_parallel.h"

namespace model {

/// Every reason why the tensor-parallel and sequence-parallel ranks of these degrees cannot share the model and its
/// sequences out; each names what would work.
std::vector<parallel::LayoutProblem> layout_problems(const ModelConfig& config, const parallel::Degrees& degrees,
                                                     parallel::TokenSharding tokens,
                                                     parallel::SpMethod sp_method = parallel::SpMethod::ring);

}  // namespace model
