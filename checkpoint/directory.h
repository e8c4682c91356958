#pragma once
/// The folder of a run's checkpoints: step_00000100/, step_00000200/, ... and `latest`, a hint for people that nothing
/// relies on. Everything else in it is left alone.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/state.h"

namespace checkpoint {

struct Candidate {
  int64_t step = 0;
  std::string path;
};

constexpr const char* kLatestFile = "latest";
constexpr const char* kKeepFile = "KEEP";  ///< a checkpoint with a file of this name is never deleted

std::string folder_name(int64_t step);                            ///< "step_00000100"
std::vector<Candidate> list_checkpoints(const std::string& dir);  ///< by step; empty where there is no folder
std::optional<Candidate> latest_checkpoint(const std::string& dir);

/// Gives the folder `temporary`, a whole checkpoint beside it, the name `path`, and the name to disk. A checkpoint that
/// had the name, as a run has that went back, is there until then, where the file system can exchange names; a pinned
/// one is set aside. StorageError.
void publish_checkpoint(const std::string& temporary, const std::string& path);

bool is_pinned(const std::string& path);  ///< has a KEEP file
/// A folder that goes is renamed first: what has a checkpoint's name is whole at every moment. StorageError.
void remove_checkpoint(const std::string& dir, int64_t step);

struct Retention {
  int64_t keep_last = 0;   ///< the newest ones; 0: all
  int64_t keep_every = 0;  ///< and those of steps that this divides; 0: none
};
/// Deletes checkpoints up to `step`, which was just saved, but for those to keep. StorageError.
void keep_newest(const std::string& dir, int64_t step, const Retention& retention);
void point_to_latest(const std::string& dir, int64_t step);

void create_checkpoint_folder(const std::string& dir);  ///< where it is missing; StorageError

/// Deletes what interrupted saves and deletions left behind. Only at start, while this run is the only one that writes
/// there.
void remove_leftovers(const std::string& dir);
void remove_temporaries(const std::string& path);  ///< files that a TemporaryFile of this path left behind

/// StorageError where nothing can be written to `dir`, or it has less room than `bytes`.
void require_free_space(const std::string& dir, int64_t bytes);

}  // namespace checkpoint
