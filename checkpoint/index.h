#pragma once
/// What is where in a checkpoint: tensors, files, fragments, and a hash for every block of bytes.

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/fragment.h"
#include "checkpoint/state.h"

namespace checkpoint {

struct ShardFile {
  std::string path;  ///< from the checkpoint's folder: "shards/000/rank_00000.h5"
  int64_t bytes = 0;
};

struct StoredFragment {
  Fragment fragment;
  int64_t file = 0;         ///< place in the list of files
  int64_t offset = 0;       ///< of its first byte in the file
  int64_t first_block = 0;  ///< place in the list of hashes of its first block; blocks do not cross fragments
};

/// Bytes that have one hash: the last block of a fragment may be shorter.
constexpr int64_t kBlockBytes = int64_t{16} << 20;

struct Index {
  RunInfo info;
  std::vector<TensorInfo> tensors;  ///< by name
  std::vector<ShardFile> files;
  std::vector<StoredFragment> fragments;  ///< by tensor
  std::vector<uint64_t> block_hashes;     ///< XXH3-64
  int64_t block_bytes = kBlockBytes;
};

int64_t num_blocks(const Index& index, const Fragment& fragment);
int64_t element_bytes(const Index& index, const Fragment& fragment);

/// The rows and columns of a tensor as fragments see it.
Box whole_box(const tensor::Shape& shape);

/// DamagedError where a fragment lies outside of its tensor or file, or a hash is missing. `place` is named in the
/// message.
void check_places(const Index& index, const std::string& place);
/// And where a tensor's elements are not there exactly once.
void check_index(const Index& index, const std::string& place);

/// For ranks to tell each other.
std::vector<int64_t> encode_numbers(const Index& index);
std::string encode_text(const Index& index);
Index decode_index(const std::vector<int64_t>& numbers, const std::string& text);

}  // namespace checkpoint
