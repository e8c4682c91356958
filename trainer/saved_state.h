#pragma once
/// The learner's state to and from checkpoints, whatever layout it has: rank 0 reads and writes whole tensors, the
/// others send and get their parts. Every call is made by all ranks together.

#include <optional>
#include <string>

#include "checkpoint/directory.h"
#include "trainer/logical_state.h"

namespace trainer {

class SavedState {
 public:
  SavedState(const Config& config, Learner& learner);

  /// Fills the learner from the checkpoint that checkpoint.resume names, else from the newest of the run. Nothing where
  /// there is none; CheckpointError where what there is cannot be used. Other ranks than 0 learn the progress only.
  std::optional<checkpoint::Resumed> load();

  /// Into the run's checkpoint folder. The path, on rank 0.
  std::string save(const checkpoint::RunInfo& info);
  void require_free_space(const checkpoint::RunInfo& info) const;  ///< all ranks together; StorageError, from rank 0

 private:
  LogicalState logical_state() const;  // rank 0 holds whole tensors as long as it lives
  std::optional<checkpoint::Resumed> read(LogicalState& logical) const;
  void share_progress(std::optional<checkpoint::Resumed>& resumed);

  const Config& config_;
  Learner& learner_;
  parallel::Communicator& world_;
};

}  // namespace trainer
