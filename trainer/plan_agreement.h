#pragma once
/// Ranks that were started with different configs or programs would wait for each other for ever, or worse, train.

#include "parallel/communicator_factory.h"
#include "tensor/ops.h"
#include "trainer/plan.h"

namespace trainer {

/// Compares plan and config with those of the other ranks of the world, over a group of its own: that the ranks agree
/// on their groups is not known yet. All ranks together. LayoutError names the ranks that differ from rank 0.
void require_same_plan(const Plan& plan, const Config& config, parallel::CommunicatorFactory& factory,
                       tensor::Device& device);

/// One rank's fingerprints.
struct Fingerprints {
  int64_t plan = 0, config = 0;
};
/// The same check of what the ranks said, by rank.
void require_equal(const std::vector<Fingerprints>& of_ranks);

}  // namespace trainer
