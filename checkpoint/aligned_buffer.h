#pragma once
/// Memory that files are written from and read into.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace checkpoint {

/// Memory as direct writes want it: aligned, of a whole number of disk blocks. Pages come with the first touch, in huge
/// ones where the kernel has them.
class AlignedBuffer {
 public:
  static constexpr int64_t kAlignment = 4096;
  static constexpr int64_t align_up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  explicit AlignedBuffer(int64_t bytes);
  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  int64_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

/// Buffers that are used again. Threads may share it.
class BufferPool {
 public:
  std::unique_ptr<AlignedBuffer> take(int64_t bytes);
  void give_back(AlignedBuffer* buffer);  ///< may be null

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<AlignedBuffer>> free_;
};

}  // namespace checkpoint
