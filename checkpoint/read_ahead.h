#pragma once
/// Reads blocks of a checkpoint before they are asked for, in threads of its own: the disk works while ranks exchange
/// what was read before.

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "checkpoint/aligned_buffer.h"
#include "checkpoint/block_reader.h"

namespace checkpoint {

class ReadAhead {
 public:
  /// What is to be read, and where to; null: into a buffer.
  struct Wanted {
    Block block;
    std::byte* to = nullptr;
  };
  /// What was read. A buffer is not used again while somebody holds it.
  struct Read {
    std::span<std::byte> bytes;
    std::shared_ptr<AlignedBuffer> buffer;
  };

  /// The order in which blocks are read fastest: as they lie in the files.
  static std::vector<Block> in_reading_order(std::vector<Block> blocks);

  ReadAhead(const OpenCheckpoint& checkpoint, std::vector<Wanted> wanted);
  ReadAhead(const ReadAhead&) = delete;
  ~ReadAhead();  ///< what is still to be read is not

  /// The next one, compared with its hash. Throws what BlockReader::read() throws; after that, next() gives the block
  /// behind it.
  Read next();

 private:
  struct Place {
    std::unique_ptr<AlignedBuffer> buffer;
    std::exception_ptr failure;
    bool is_read = false;
  };

  void read_blocks();
  bool may_claim() const;
  parallel::Range to_announce(size_t i);
  int64_t bytes_of(size_t i) const;

  const OpenCheckpoint& checkpoint_;
  const std::vector<Wanted> wanted_;
  std::shared_ptr<BufferPool> buffers_ = std::make_shared<BufferPool>();  // whoever holds a buffer holds it too

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<Place> places_;  // by what is wanted
  size_t num_claimed_ = 0;     // that a thread reads, or has read
  size_t num_taken_ = 0;
  int64_t bytes_ahead_ = 0;  // of those that are claimed and not taken
  size_t num_announced_ = 0;
  int64_t bytes_announced_ = 0;  // of those that are announced and not claimed
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace checkpoint
