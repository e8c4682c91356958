#include "checkpoint/read_ahead.h"

#include "tensor/error.h"

namespace checkpoint {

namespace {

constexpr int kNumThreads = 2;  // one waits for the disk while the other hashes
constexpr size_t kMostBlocksAhead = 4;
constexpr int64_t kMostBytesAhead = kMostBlocksAhead * kBlockBytes;

}  // namespace

ReadAhead::ReadAhead(const OpenCheckpoint& checkpoint, std::vector<Block> blocks)
    : checkpoint_(checkpoint), blocks_(std::move(blocks)), places_(blocks_.size()) {
  for (int i = 0; i < kNumThreads && !blocks_.empty(); ++i) threads_.emplace_back([this] { read_blocks(); });
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

std::span<const std::byte> ReadAhead::next() {
  std::unique_lock lock(mutex_);
  CHECK(num_taken_ < blocks_.size(), "no more than {} blocks are read", blocks_.size());
  if (num_taken_ > 0 && places_[num_taken_ - 1].buffer) free_.push_back(std::move(places_[num_taken_ - 1].buffer));
  Place& place = places_[num_taken_];
  changed_.wait(lock, [&] { return place.is_read; });
  const int64_t bytes = bytes_of(checkpoint_.index, blocks_[num_taken_]);
  ++num_taken_;
  bytes_ahead_ -= bytes;
  changed_.notify_all();
  if (place.failure) std::rethrow_exception(place.failure);
  return {place.buffer->data(), static_cast<size_t>(bytes)};
}

bool ReadAhead::may_claim() const {
  if (num_claimed_ == blocks_.size() || num_claimed_ == num_taken_) return true;
  return num_claimed_ - num_taken_ < kMostBlocksAhead &&
         bytes_ahead_ + bytes_of(checkpoint_.index, blocks_[num_claimed_]) <= kMostBytesAhead;
}

std::unique_ptr<AlignedBuffer> ReadAhead::claim_buffer(int64_t bytes) {
  if (free_.empty()) return std::make_unique<AlignedBuffer>(std::max(bytes, kBlockBytes));
  std::unique_ptr<AlignedBuffer> buffer = std::move(free_.back());
  free_.pop_back();
  if (buffer->bytes() < bytes) buffer = std::make_unique<AlignedBuffer>(bytes);
  return buffer;
}

void ReadAhead::read_blocks() {
  BlockReader reader(checkpoint_);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_over_ || may_claim(); });
    if (is_over_ || num_claimed_ == blocks_.size()) return;
    const Block& block = blocks_[num_claimed_];
    Place& place = places_[num_claimed_++];
    const int64_t bytes = bytes_of(checkpoint_.index, block);
    bytes_ahead_ += bytes;
    std::exception_ptr failure;
    try {
      place.buffer = claim_buffer(bytes);
      lock.unlock();
      reader.read(block, place.buffer->data());
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    if (!lock.owns_lock()) lock.lock();
    place.failure = failure;
    place.is_read = true;
    changed_.notify_all();
  }
}

}  // namespace checkpoint
