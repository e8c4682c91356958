#include "checkpoint/read_ahead.h"

#include <algorithm>
#include <system_error>

#include "tensor/error.h"

namespace checkpoint {

namespace {

constexpr int kNumThreads = 4;  // some wait for the disk while others copy and hash
constexpr int64_t kMostBytesAhead = 4 * kBlockBytes;
constexpr int64_t kMostBytesAnnounced = 4 * kBlockBytes;

}  // namespace

std::vector<Block> ReadAhead::in_reading_order(std::vector<Block> blocks) {
  std::sort(blocks.begin(), blocks.end(),
            [](const Block& a, const Block& b) { return std::pair(a.file, a.offset) < std::pair(b.file, b.offset); });
  return blocks;
}

ReadAhead::ReadAhead(const OpenCheckpoint& checkpoint, std::vector<Wanted> wanted)
    : checkpoint_(checkpoint), wanted_(std::move(wanted)), places_(wanted_.size()) {
  try {
    for (int i = 0; i < kNumThreads && !wanted_.empty(); ++i) threads_.emplace_back([this] { read_blocks(); });
  } catch (const std::system_error&) {  // a process may not have so many
    if (threads_.empty()) throw;
  }
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

ReadAhead::Read ReadAhead::next() {
  std::unique_lock lock(mutex_);
  CHECK(num_taken_ < wanted_.size(), "no more than {} blocks are read", wanted_.size());
  const size_t i = num_taken_;
  changed_.wait(lock, [&] { return places_[i].is_read; });
  ++num_taken_;
  bytes_ahead_ -= bytes_of(i);
  changed_.notify_all();
  std::shared_ptr<AlignedBuffer> buffer(places_[i].buffer.release(),
                                        [pool = buffers_](AlignedBuffer* own) { pool->give_back(own); });
  if (places_[i].failure) std::rethrow_exception(places_[i].failure);
  std::byte* const data = wanted_[i].to != nullptr ? wanted_[i].to : buffer->data();
  return {{data, static_cast<size_t>(bytes_of(i))}, std::move(buffer)};
}

int64_t ReadAhead::bytes_of(size_t i) const { return checkpoint::bytes_of(checkpoint_.index, wanted_[i].block); }

bool ReadAhead::may_claim() const {
  if (num_claimed_ == wanted_.size() || num_claimed_ == num_taken_) return true;
  return bytes_ahead_ + bytes_of(num_claimed_) <= kMostBytesAhead;
}

/// Indices of what the system is told of, beyond block i that is read now: disks are slow to start, and quick with much
/// to do.
parallel::Range ReadAhead::to_announce(size_t i) {
  if (num_announced_ > i) {
    bytes_announced_ -= bytes_of(i);
  } else {
    num_announced_ = i + 1;
  }
  const size_t first = num_announced_;
  while (num_announced_ < wanted_.size() && bytes_announced_ < kMostBytesAnnounced) {
    bytes_announced_ += bytes_of(num_announced_++);
  }
  return {static_cast<int64_t>(first), static_cast<int64_t>(num_announced_)};
}

void ReadAhead::read_blocks() {
  BlockReader reader(checkpoint_);
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_over_ || may_claim(); });
    if (is_over_ || num_claimed_ == wanted_.size()) return;
    const size_t i = num_claimed_++;
    bytes_ahead_ += bytes_of(i);
    const parallel::Range announced = to_announce(i);
    lock.unlock();
    const Wanted& wanted = wanted_[i];
    Place& place = places_[i];
    std::exception_ptr failure;
    try {
      for (int64_t j = announced.begin; j < announced.end; ++j) reader.announce(wanted_[static_cast<size_t>(j)].block);
      if (wanted.to == nullptr) place.buffer = buffers_->take(bytes_of(i));
      reader.read(wanted.block, wanted.to != nullptr ? wanted.to : place.buffer->data());
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    lock.lock();
    place.failure = failure;
    place.is_read = true;
    changed_.notify_all();
  }
}

}  // namespace checkpoint
