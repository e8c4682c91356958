#include "checkpoint/direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace checkpoint {

DirectFile::DirectFile(const TemporaryFile& file) : file_(file) {
  direct_ = FileDescriptor(::open(file.temporary_path().c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW));
}

void DirectFile::write_at(int64_t offset, const std::byte* from, int64_t bytes) {
  // The rest, less than a disk block, goes the ordinary way: what follows it may be another's.
  const int64_t written = offset % AlignedBuffer::kAlignment == 0 ? write_directly(offset, from, bytes) : 0;
  file_.write_at(offset + written, from + written, bytes - written);
}

/// How much of it was written: nothing where the file system does not want to.
int64_t DirectFile::write_directly(int64_t offset, const std::byte* from, int64_t bytes) {
  const int64_t whole = bytes / AlignedBuffer::kAlignment * AlignedBuffer::kAlignment;
  int64_t written = 0;
  while (direct_.get() >= 0 && written < whole) {
    const ssize_t count =
        ::pwrite(direct_.get(), from + written, static_cast<size_t>(whole - written), offset + written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || count % AlignedBuffer::kAlignment != 0) {  // an error that stays is said by the ordinary write
      direct_.close();
      break;
    }
    written += count;
  }
  return written;
}

}  // namespace checkpoint
