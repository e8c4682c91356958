#include "data/byte_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "data/mapped_ranges.h"
#include "tensor/error.h"

namespace data {

using tensor::DataError;

namespace {

std::string system_error() { return std::strerror(errno); }

/// `stat_call` is fstat or stat of `path`.
template <class StatCall>
struct stat status_of(const std::string& path, StatCall stat_call) {
  struct stat status;
  if (stat_call(&status) != 0) throw DataError(fmt::format("{}: cannot be examined: {}.", path, system_error()));
  return status;
}

FileIdentity identity_of(const struct stat& status) {
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = static_cast<uint64_t>(status.st_size),
          .modified_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

int open_regular_file(const std::string& path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer; regular files ignore it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    throw DataError(
        fmt::format("{}: cannot be opened: {}.\n  Fix: check the path and its permissions.", path, system_error()));
  return fd;
}

void require_regular(const struct stat& status, const std::string& path) {
  if (S_ISDIR(status.st_mode))
    throw DataError(fmt::format("{}: is a directory.\n  Fix: name the file in it, such as {}/train.bin.", path, path));
  if (!S_ISREG(status.st_mode))
    throw DataError(
        fmt::format("{}: is not a regular file, so it has no size to check.\n"
                    "  Fix: copy its contents to a file.",
                    path));
}

}  // namespace

ByteFile::ByteFile(std::string path, FileAccess access) : path_(std::move(path)), fd_(open_regular_file(path_)) {
  try {
    const struct stat status = status_of(path_, [&](struct stat* to) { return ::fstat(fd_, to); });
    require_regular(status, path_);
    identity_ = identity_of(status);
    if (access == FileAccess::mmap && size() > 0) {
      void* mapping = ::mmap(nullptr, size(), PROT_READ, MAP_PRIVATE, fd_, 0);
      if (mapping == MAP_FAILED)
        throw DataError(fmt::format("{}: its {} bytes cannot be mapped: {}.\n  Fix: set data.access = \"pread\".",
                                    path_, size(), system_error()));
      mapping_ = static_cast<const char*>(mapping);
      remember_mapping(mapping_, size(), path_);
      ::close(std::exchange(fd_, -1));  // the mapping holds the file; descriptors are few
    }
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

ByteFile::ByteFile(ByteFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      identity_(other.identity_),
      mapping_(std::exchange(other.mapping_, nullptr)) {}

ByteFile::~ByteFile() {
  if (mapping_) {
    forget_mapping(mapping_);
    ::munmap(const_cast<char*>(mapping_), size());
  }
  if (fd_ >= 0) ::close(fd_);
}

void ByteFile::read(uint64_t offset, uint64_t count, void* out) const {
  uint64_t end = 0;
  if (__builtin_add_overflow(offset, count, &end) || end > size())
    throw DataError(
        fmt::format("{}: bytes [{}, {} + {}) are wanted, but the file has {}.", path_, offset, offset, count, size()));
  if (mapping_) {
    std::memcpy(out, mapping_ + offset, count);
    return;
  }
  constexpr uint64_t kMaxRead = uint64_t{1} << 30;  // one call never returns more than 2^31 - 1 bytes
  char* to = static_cast<char*>(out);
  while (offset < end) {
    const ssize_t got = ::pread(fd_, to, std::min(end - offset, kMaxRead), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw DataError(fmt::format("{}: cannot be read at byte {}: {}.", path_, offset, system_error()));
    if (got == 0)
      throw DataError(
          fmt::format("{}: ends at byte {}, but had {} bytes when it was opened.\n"
                      "  Fix: leave data files alone while a run uses them.",
                      path_, offset, size()));
    offset += static_cast<uint64_t>(got);
    to += got;
  }
}

std::string_view ByteFile::view() const {
  CHECK(mapping_ || size() == 0, "{} is viewed, so it must be mapped", path_);
  return {mapping_, size()};
}

void ByteFile::check_unchanged() const {
  const FileIdentity now = identity_of(status_of(path_, [&](struct stat* to) { return ::stat(path_.c_str(), to); }));
  if (now == identity_) return;
  throw DataError(
      fmt::format("{}: changed while in use: {} bytes when opened, {} now, modified {} s later.\n"
                  "  The order of samples holds for the file as it was.\n"
                  "  Fix: leave data files alone while a run uses them; write a new file beside the old one.",
                  path_, size(), now.size, (now.modified_ns - identity_.modified_ns) / 1'000'000'000));
}

}  // namespace data
