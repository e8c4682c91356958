#pragma once
/// Reading a checkpoint of whatever layout block by block, each compared with its hash.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/index.h"

namespace checkpoint {

/// The index of a folder that save_sharded() made, or of a file that save() made; with the folder that its paths are
/// relative to. DamagedError, CheckpointError where there is none. Reads no tensor.
struct OpenCheckpoint {
  Index index;
  std::string folder;
};
OpenCheckpoint open_checkpoint(const std::string& path);

bool is_folder(const std::string& path);

/// A stretch of a fragment that is read and hashed at once.
struct Block {
  Fragment part;
  int64_t file = 0;
  int64_t offset = 0;
  uint64_t hash = 0;
};
int64_t bytes_of(const Index& index, const Block& block);
std::vector<Block> blocks_of(const Index& index);                                ///< by fragment
std::vector<Block> blocks_of(const Index& index, const StoredFragment& stored);  ///< in order

/// Keeps the file open that it read last.
class BlockReader {
 public:
  explicit BlockReader(const OpenCheckpoint& checkpoint) : checkpoint_(checkpoint) {}

  /// Fills to[bytes_of(block)]. DamagedError, which names file and tensor, where the bytes are not there or do not have
  /// their hash; CheckpointError where the file is missing.
  void read(const Block& block, std::byte* to);
  /// Tells the system that a block will be read soon.
  void announce(const Block& block);
  /// A whole tensor in row-major order, by its place in the index.
  std::vector<std::byte> read_tensor(size_t tensor);

 private:
  const InputFile& file_of(const Block& block);

  const OpenCheckpoint& checkpoint_;
  std::unique_ptr<InputFile> input_;
  int64_t input_file_ = 0;
};

}  // namespace checkpoint
