#pragma once
/// From where a run goes on. All ranks together; rank 0 alone decides what there is, so that no two ranks see the
/// folder differently.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/sharded_load.h"

namespace checkpoint {

struct Resumed {
  RunInfo info;
  std::string path;
  std::vector<std::string> warnings;  ///< on rank 0: one per newer checkpoint that was damaged; to be shown loudly
};

/// checkpoint.resume = "auto": fills `wanted` from the newest checkpoint in `dir` that is whole. Nothing where there
/// are none; CheckpointError where there are some and all are damaged, or where one that is whole does not fit.
std::optional<Resumed> resume_newest(const Wire& wire, const std::string& dir, std::span<const LocalFragment> wanted);

/// From the folder or file at `path`. CheckpointError, DamagedError.
Resumed resume_from(const Wire& wire, const std::string& path, std::span<const LocalFragment> wanted);

}  // namespace checkpoint
