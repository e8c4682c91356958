#pragma once
/// What an HDF5 file holds, found out without trusting it: only hard links, groups and contiguous datasets without
/// filters or external storage; every size is our own arithmetic, compared with the size of the file.

#include <string>
#include <vector>

#include "checkpoint/content_hash.h"
#include "checkpoint/file.h"

namespace checkpoint {

/// A tensor as the file describes it, and where its bytes lie. The hash is the file's claim.
struct StoredTensor {
  HashedTensor hashed;
  int64_t offset = 0;
};

struct Catalog {
  RunInfo info;
  std::vector<StoredTensor> tensors;  ///< by name
};

/// DamagedError where the file is not a checkpoint, or not all there, or not what was written as far as can be seen
/// without reading the tensors.
Catalog read_catalog(const InputFile& file);

}  // namespace checkpoint
