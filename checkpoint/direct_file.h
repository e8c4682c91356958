#pragma once
/// Writes of a temporary file past the page cache: at the speed of the disk, and with none of the memory that training
/// needs. Where the file system cannot do it, ordinary writes.

#include "checkpoint/aligned_buffer.h"
#include "checkpoint/file.h"

namespace checkpoint {

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
