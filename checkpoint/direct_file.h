#pragma once
/// Writes of a temporary file past the page cache: at the speed of the disk, and with none of the memory that training
/// needs. Where the file system cannot do it, ordinary writes.

#include <cstddef>
#include <memory>

#include "checkpoint/file.h"

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

class DirectFile {
 public:
  /// A second way into a file in the making.
  explicit DirectFile(const TemporaryFile& file);

  /// `from` is aligned as an AlignedBuffer is. StorageError.
  void write_at(int64_t offset, const std::byte* from, int64_t bytes);

 private:
  int64_t write_directly(int64_t offset, const std::byte* from, int64_t bytes);

  const TemporaryFile& file_;
  FileDescriptor direct_;  // none: the file system cannot
};

}  // namespace checkpoint
