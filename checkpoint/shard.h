#pragma once
/// One rank's file of fragments, written in the background from memory that training goes on using. HDF5 lays the file
/// out; the bytes go in by our own writes, block by block, each hashed on its way.

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/direct_file.h"
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

/// The name of a fragment's dataset in its shard: "weights/layers.0.mlp.up.weight@4096", where in its box it begins; of
/// columns, "... columns 0:64".
std::string dataset_name(const TensorInfo& info, const Fragment& fragment);

/// Bytes that a shard of these takes, at the most.
int64_t shard_bytes(std::span<const LocalFragment> fragments);

/// What a shard became.
struct WrittenShard {
  std::string error;  ///< StorageError's text; empty: all is on disk
  int64_t file_bytes = 0;
  std::vector<int64_t> offsets;                     ///< by fragment
  std::vector<std::vector<uint64_t>> block_hashes;  ///< by fragment
};

/// What writing a shard takes of memory: one save after another uses the same.
struct SaveMemory {
  /// `staging_bytes`: most that before_update() copies.
  explicit SaveMemory(int64_t staging_bytes);

  std::vector<AlignedBuffer> buffers;  ///< of kBlockBytes
  AlignedBuffer staging;
};

class TableWriter;

class ShardWriter {
 public:
  /// Starts to write; makes the folder of `path` where it is missing. What the fragments borrow may change after
  /// before_update() only. Memory is borrowed too, and no other writer's.
  ShardWriter(std::string path, const RunInfo& info, std::vector<LocalFragment> fragments, SaveMemory& memory);
  ShardWriter(const ShardWriter&) = delete;
  ~ShardWriter();  ///< waits

  /// Values are about to change: what is not read yet is copied, as far as there is memory for that, or waited for.
  void before_update();
  bool is_done() const;
  const WrittenShard& wait();  ///< until it is done

  const std::vector<LocalFragment>& fragments() const { return fragments_; }

 private:
  /// A stretch of a fragment that is read, hashed and written at once.
  struct Block {
    size_t fragment;
    int64_t begin;  // element
    int64_t count;
    const std::byte* copy;  // null: the values are still where they were
  };
  struct Full {
    const std::byte* data;
    AlignedBuffer* buffer;  // null: data is a copy
    int64_t offset;
    int64_t bytes;
  };

  void run();  // the reading thread
  std::unique_ptr<TableWriter> lay_out(const TemporaryFile& file);
  void write_tables(const TemporaryFile& file, const TableWriter& tables);
  void read_blocks();
  std::optional<Full> read(size_t block);
  void write_blocks(const TemporaryFile& file);  // the writing thread
  void fail(const std::string& error);
  tensor::Tensor values_of(const Block& block) const;
  int64_t offset_of(const Block& block) const;

  std::string path_;
  std::vector<LocalFragment> fragments_;
  SaveMemory& memory_;
  Index own_;  // of this file alone: its tables tell what is in it
  WrittenShard written_;

  mutable std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<Block> blocks_;
  std::vector<AlignedBuffer*> free_;
  std::deque<Full> full_;
  int64_t staged_bytes_ = 0;
  size_t num_claimed_ = 0;  // blocks that the reader is at, or has read
  size_t num_read_ = 0;
  size_t first_copied_ = 0;  // blocks from here on are copies, or become such
  bool all_is_read_ = false;
  bool is_done_ = false;
  std::thread thread_;
};

}  // namespace checkpoint
