#pragma once
/// The folder of a run's checkpoints: step_00000100.h5, step_00000200.h5, ... Everything else in it is left alone.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/state.h"

namespace checkpoint {

struct Candidate {
  int64_t step = 0;
  std::string path;
};

std::string file_name(int64_t step);                              ///< "step_00000100.h5"
std::vector<Candidate> list_checkpoints(const std::string& dir);  ///< by step; empty where there is no folder
std::optional<Candidate> latest_checkpoint(const std::string& dir);

/// Saves step info.progress.step into `dir` (created where missing), after a look at the free space.
/// Then deletes all but the `keep_last` newest checkpoints up to this step; 0 keeps all. Returns the path.
std::string save_in(const std::string& dir, const RunInfo& info, std::span<const NamedTensor> tensors,
                    int64_t keep_last);

struct Resumed {
  RunInfo info;
  std::string path;
  std::vector<std::string> warnings;  ///< one per newer checkpoint that was damaged; to be shown loudly
};

/// checkpoint.resume = "auto": fills `tensors` from the newest checkpoint that is whole. Nothing where there are none;
/// CheckpointError where there are some and all are damaged, or where one that is whole does not fit.
std::optional<Resumed> resume_newest(const std::string& dir, std::span<const NamedTensor> tensors);

/// Deletes what interrupted saves left behind. Only at start, while this run is the only one that writes there.
void remove_temporary_files(const std::string& dir);

/// StorageError where `dir` has less room than `bytes`.
void require_free_space(const std::string& dir, int64_t bytes);

}  // namespace checkpoint
