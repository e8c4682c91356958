#pragma once
/// Other forms of a checkpoint: one plain file, and an index made again from the shards.

#include <string>

#include "checkpoint/index.h"

namespace checkpoint {

/// Writes the state of a folder (or single file) as one plain HDF5 file (single_file.h), with memory for its largest
/// tensor. Every block is compared with its hash. DamagedError, CheckpointError; StorageError.
void consolidate(const std::string& path, const std::string& output);

struct Rebuilt {
  Index index;
  bool was_whole = false;  ///< then nothing was written
};
/// Writes index.h5 and MANIFEST.json of a folder that lost one of them, from what its shards say of themselves. Reads
/// no tensor. DamagedError where shards are missing or contradict each other; StorageError.
Rebuilt rebuild_index(const std::string& path);

}  // namespace checkpoint
