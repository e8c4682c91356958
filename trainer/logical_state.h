#pragma once
/// From the fragments that ranks keep to whole logical tensors on rank 0: how a comparison of two layouts sees the
/// state. Nothing about the layout is left in the result.

#include <map>
#include <string>
#include <vector>

#include "checkpoint/state.h"
#include "trainer/learner.h"

namespace trainer {

class LogicalState {
 public:
  /// All ranks of `world` together. Rank 0 gets memory for every tensor that any rank has a fragment of, where its own
  /// fragment is not the whole already; other ranks get none. All are borrowed.
  LogicalState(std::vector<StateFragment> fragments, const parallel::ParameterStore& store,
               parallel::Communicator& world, tensor::Device& device);

  void gather();  ///< rank 0's tensors become the state; every element comes from the rank that owns it

  /// Rank 0: every tensor as "KIND/NAME", in order of name.
  std::vector<checkpoint::NamedTensor> tensors();

 private:
  using Runs = std::vector<int64_t>;  // of the whole tensor, row-major: begin and count of each
  /// What rank 0 knows of a fragment.
  struct Entry {
    std::string name;
    tensor::Dtype dtype;
    tensor::Shape shape;
    Runs owned;
  };
  using Entries = std::vector<Entry>;

  bool is_root() const { return world_.rank() == 0; }
  Entries own_entries() const;
  std::vector<Entries> gather_entries(const Entries& own) const;  // on rank 0
  void make_whole(const Entry& entry, const tensor::Tensor* own);
  tensor::Tensor packed(const StateFragment& fragment, const parallel::Range& range) const;

  std::vector<StateFragment> fragments_;
  const parallel::ParameterStore& store_;
  parallel::Communicator& world_;
  tensor::Device& device_;
  std::vector<Entries> of_ranks_;                // rank 0: by rank
  std::map<std::string, tensor::Tensor> whole_;  // rank 0
};

}  // namespace trainer
