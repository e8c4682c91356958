#pragma once
/// One rank's file of fragments. HDF5 lays it out; the bytes go in by our own writes, block by block, each hashed on
/// its way. Its own tables (tables.h) tell what is in it.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/index.h"
#include "tensor/tensor.h"

namespace checkpoint {

/// A piece of state that a rank keeps. Values [fragment.numel()] are borrowed, and contiguous.
struct LocalFragment {
  TensorInfo info;    ///< of the whole tensor: "exp_avg/layers.0.attention.q.weight"
  Fragment fragment;  ///< its tensor is not read
  tensor::Tensor values;
};

class TableWriter;

class ShardWriter {
 public:
  /// Lays the file out, with room for all. StorageError names it and what the system said.
  ShardWriter(const std::string& path, const RunInfo& info, std::span<const LocalFragment> fragments);
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;

  void write(size_t fragment);  ///< once for each
  int64_t publish();            ///< to disk, under its name. -> bytes

  const std::vector<int64_t>& offsets() const { return offsets_; }                    ///< by fragment
  const std::vector<std::vector<uint64_t>>& hashes() const { return block_hashes_; }  ///< by fragment

 private:
  std::span<const LocalFragment> fragments_;
  std::string path_;
  TemporaryFile file_;
  Index own_;  ///< of this file alone
  std::unique_ptr<TableWriter> tables_;
  std::vector<int64_t> offsets_;
  std::vector<std::vector<uint64_t>> block_hashes_;
};

/// The name of a fragment's dataset in its shard: "weights/layers.0.mlp.up.weight@4096", where in its box it begins; of
/// columns, "... columns 0:64".
std::string dataset_name(const TensorInfo& info, const Fragment& fragment);

/// Bytes that a shard of these takes, at the most.
int64_t shard_bytes(std::span<const LocalFragment> fragments);

}  // namespace checkpoint
