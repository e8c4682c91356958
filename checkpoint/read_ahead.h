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

#include "checkpoint/block_reader.h"
#include "checkpoint/direct_file.h"

namespace checkpoint {

class ReadAhead {
 public:
  ReadAhead(const OpenCheckpoint& checkpoint, std::vector<Block> blocks);
  ReadAhead(const ReadAhead&) = delete;
  ~ReadAhead();  ///< what is still to be read is not

  /// The next block's bytes, compared with their hash; they stay until the next call. What BlockReader::read() throws:
  /// the block after it can be asked for all the same.
  std::span<const std::byte> next();

 private:
  struct Place {
    std::unique_ptr<AlignedBuffer> buffer;
    std::exception_ptr failure;
    bool is_read = false;
  };

  void read_blocks();
  bool may_claim() const;
  std::unique_ptr<AlignedBuffer> claim_buffer(int64_t bytes);

  const OpenCheckpoint& checkpoint_;
  const std::vector<Block> blocks_;

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::vector<Place> places_;  // by block
  size_t num_claimed_ = 0;     // blocks that a thread reads, or has read
  size_t num_taken_ = 0;
  int64_t bytes_ahead_ = 0;  // of those that are claimed and not taken
  std::vector<std::unique_ptr<AlignedBuffer>> free_;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace checkpoint
