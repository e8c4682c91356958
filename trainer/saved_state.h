#pragma once
/// A learner's state in checkpoints: what this rank owns is saved, what it keeps is loaded, from whatever layout.

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/resume.h"
#include "checkpoint/sharded_save.h"
#include "trainer/learner.h"

namespace trainer {

/// All ranks together for every call.
class SavedState {
 public:
  SavedState(const Config& config, Learner& learner);

  /// Fills the learner from the checkpoint that checkpoint.resume names, else from the newest of the run. Nothing where
  /// there is none; CheckpointError where what there is cannot be used.
  std::optional<checkpoint::Resumed> load();

  /// Into the run's checkpoint folder; older ones are deleted as the config says. See ShardedSave.
  void start_save(const checkpoint::RunInfo& info);
  checkpoint::ShardedSave& saving() { return saving_; }
  void require_free_space() const;  ///< StorageError

 private:
  std::vector<checkpoint::LocalFragment> owned() const;  // none empty
  std::vector<checkpoint::LocalFragment> kept() const;

  const Config& config_;
  Learner& learner_;
  checkpoint::Wire wire_;
  checkpoint::ShardedSave saving_;
};

}  // namespace trainer
