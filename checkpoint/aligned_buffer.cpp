#include "checkpoint/aligned_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace checkpoint {

AlignedBuffer::AlignedBuffer(int64_t bytes)
    : bytes_(align_up(bytes)),
      data_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(bytes_)))) {
  if (!data_ && bytes_ > 0) throw std::bad_alloc();
  ::madvise(data_.get(), static_cast<size_t>(bytes_), MADV_HUGEPAGE);  // the kernel may have none
}

void AlignedBuffer::Free::operator()(std::byte* data) const { std::free(data); }

std::unique_ptr<AlignedBuffer> BufferPool::take(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto fits = [&](const auto& buffer) { return buffer->bytes() >= bytes; };
  const auto found = std::find_if(free_.begin(), free_.end(), fits);
  std::unique_ptr<AlignedBuffer> buffer;
  if (found != free_.end()) {
    buffer = std::move(*found);
    free_.erase(found);
  } else {
    if (!free_.empty()) free_.erase(free_.begin());  // a larger one takes its place
    buffer = std::make_unique<AlignedBuffer>(bytes);
  }
  return buffer;
}

void BufferPool::give_back(AlignedBuffer* buffer) {
  if (buffer == nullptr) return;
  const std::lock_guard lock(mutex_);
  free_.emplace_back(buffer);
}

}  // namespace checkpoint
