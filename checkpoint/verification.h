#pragma once
/// Is every byte of a checkpoint what was written?

#include <cstdint>
#include <string>
#include <vector>

namespace checkpoint {

struct Verification {
  int64_t num_files = 0, num_tensors = 0, num_blocks = 0;
  int64_t bytes = 0;                 ///< of tensors, read and hashed
  std::vector<std::string> damages;  ///< a sentence each; names the file, and the tensor where one is hit
};

/// Of a folder or a single file: manifest, index, the description in every shard, and the hash of every block of every
/// shard. Goes on after what is damaged as far as the rest can be found. CheckpointError where there is none.
Verification verify(const std::string& path);

}  // namespace checkpoint
