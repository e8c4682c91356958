#include "checkpoint/read_ahead.h"

#include "tensor/error.h"

namespace checkpoint {

namespace {

constexpr int kNumThreads = 2;  // one waits for the disk while the other hashes
constexpr size_t kMostBlocksAhead = 4;
constexpr int64_t kMostBytesAhead = kMostBlocksAhead * kBlockBytes;

}  // namespace

ReadAhead::ReadAhead(const OpenCheckpoint& checkpoint, std::vector<Wanted> wanted)
    : checkpoint_(checkpoint), wanted_(std::move(wanted)), places_(wanted_.size()) {
  for (int i = 0; i < kNumThreads && !wanted_.empty(); ++i) threads_.emplace_back([this] { read_blocks(); });
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
  return num_claimed_ - num_taken_ < kMostBlocksAhead && bytes_ahead_ + bytes_of(num_claimed_) <= kMostBytesAhead;
}

void ReadAhead::read_blocks() {
  BlockReader reader(checkpoint_);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_over_ || may_claim(); });
    if (is_over_ || num_claimed_ == wanted_.size()) return;
    const Wanted& wanted = wanted_[num_claimed_];
    Place& place = places_[num_claimed_];
    bytes_ahead_ += bytes_of(num_claimed_++);
    lock.unlock();
    std::exception_ptr failure;
    try {
      if (wanted.to == nullptr)
        place.buffer = buffers_->take(std::max(kBlockBytes, checkpoint::bytes_of(checkpoint_.index, wanted.block)));
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
