#pragma once
/// From the fragments that ranks keep to whole logical tensors on rank 0, and back: how a checkpoint of one file, and a
/// comparison of two layouts, see the state. Nothing about the layout is left in the result.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "trainer/learner.h"

namespace trainer {

class LogicalState {
 public:
  /// Rank 0 of `world` gets memory for whole tensors, where its own fragment is not the whole already; other ranks get
  /// none. Fragments list the same tensors in the same order on all ranks. All are borrowed.
  LogicalState(std::vector<StateFragment> fragments, const parallel::ParameterStore& store,
               parallel::Communicator& world);

  void gather();   ///< rank 0's tensors become the state; every element comes from the rank that owns it
  void scatter();  ///< every rank's fragments become what rank 0's tensors say

  /// Rank 0: every tensor as "KIND/NAME".
  std::vector<checkpoint::NamedTensor> tensors() const;

 private:
  bool is_root() const { return world_.rank() == 0; }
  void gather(const StateFragment& fragment, tensor::Tensor& whole);
  void scatter(StateFragment& fragment, tensor::Tensor& whole);
  tensor::Tensor owned_values(const StateFragment& fragment) const;

  std::vector<StateFragment> fragments_;
  const parallel::ParameterStore& store_;
  parallel::Communicator& world_;
  std::vector<std::unique_ptr<tensor::Tensor>> whole_;  // rank 0: one for each fragment
};

}  // namespace trainer
