#pragma once
/// MANIFEST.json: the last file of a checkpoint to be written, and the proof that all of it is there. It names every
/// file with its size, and the index with its hash; its own text has a hash too.

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/index.h"

namespace checkpoint {

struct Manifest {
  int64_t step = 0;
  int64_t index_bytes = 0;
  uint64_t index_hash = 0;  ///< XXH3-64 of index.h5
  std::vector<ShardFile> files;
};

constexpr const char* kManifestFile = "MANIFEST.json";
constexpr const char* kIndexFile = "index.h5";

/// Of the files that lie in `folder`, the index included. StorageError.
void write_manifest(const std::string& folder, const Index& index);

/// DamagedError where it is not whole, where a file is missing or has another size, or where the index is another one.
Manifest read_manifest(const std::string& folder);

}  // namespace checkpoint
