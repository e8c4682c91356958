#pragma once
/// The checkpoints of a run, for people: which are there, which of them are whole, which may go.

#include <ctime>
#include <string>
#include <vector>

#include "checkpoint/directory.h"
#include "checkpoint/index.h"

namespace checkpoint {

struct Listed {
  Candidate candidate;
  std::string damage;  ///< empty: manifest, index and the sizes of all files agree (no tensor was read)
  RunInfo info;        ///< and below, of one that is whole
  int64_t num_files = 0;
  int64_t num_tensors = 0;
  int64_t bytes = 0;
  std::time_t saved_at = 0;
  bool is_pinned = false;  ///< has a KEEP file
};

/// By step. CheckpointError where there is no such folder.
std::vector<Listed> list(const std::string& dir);

/// Deletes checkpoints by the rules of `retention`, and returns those. Reads the newest ones until `keep_last` of them
/// have all their hashes, and deletes only what is older: damaged and pinned ones stay. At least one good one is kept.
/// StorageError.
std::vector<Candidate> prune(const std::string& dir, const Retention& retention);

}  // namespace checkpoint
