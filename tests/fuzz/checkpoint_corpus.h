#pragma once
/// A small checkpoint of two shards, and the same as one file.

#include <string>
#include <vector>

#include "checkpoint/shard.h"
#include "tests/checkpoint/state_of_a_run.h"

namespace fuzz {

class CheckpointCorpus {
 public:
  /// Writes below `folder`.
  explicit CheckpointCorpus(const std::string& folder);

  const std::string& path() const { return path_; }                ///< of the checkpoint
  const std::string& single_file() const { return single_file_; }  ///< its path
  tests::StateOfARun& state() { return state_; }
  std::vector<std::string> files() const;  ///< of the checkpoint, from its folder

 private:
  std::vector<checkpoint::LocalFragment> shard(int64_t rank);

  tests::StateOfARun state_;
  std::string path_, single_file_;
};

}  // namespace fuzz
