#include "checkpoint/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <system_error>

#include "checkpoint/state.h"

namespace checkpoint {
namespace {

constexpr int64_t kMaxIoBytes = int64_t{1} << 30;  // Linux moves at most 2 GiB - 4 KiB per call
constexpr int kNameAttempts = 16;

std::string random_letters() {
  std::random_device random;
  return fmt::format("{:08x}", random());
}

const char* remedy(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free space there, lower checkpoint.keep_last, or set checkpoint.dir to another disk";
    case EFBIG:
      return "raise the file size limit (ulimit -f) or set checkpoint.dir to a file system that takes larger files";
    case EACCES:
    case EPERM:
    case EROFS:
      return "set checkpoint.dir to a folder that you may write";
    case ENOENT:
    case ENOTDIR:
      return "create the folder, or set checkpoint.dir to one that exists";
    default:
      return "look at the disk or network file system behind that folder, or set checkpoint.dir to another one";
  }
}

[[noreturn]] void storage_error(const std::string& path, const std::string& what, int error) {
  throw tensor::StorageError(fmt::format("{}: {}: {}.\n  Fix: {}.", path, what, errno_text(error), remedy(error)));
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    (void)close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

FileDescriptor::~FileDescriptor() { (void)close(); }

bool FileDescriptor::close() {
  const int fd = std::exchange(fd_, -1);
  return fd < 0 || ::close(fd) == 0;
}

InputFile::InputFile(const std::string& path) : path_(path) {
  fd_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // O_NONBLOCK: a FIFO must not hang us
  if (fd_.get() < 0 && (errno == ENOENT || errno == ENOTDIR)) {
    throw tensor::CheckpointError(fmt::format(
        "{}: there is no such checkpoint.\n  Fix: set checkpoint.resume to the path of one, \"auto\" or \"none\".",
        path));
  }
  if (fd_.get() < 0) storage_error(path, "the checkpoint cannot be opened", errno);
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) storage_error(path, "the checkpoint cannot be examined", errno);
  if (!S_ISREG(status.st_mode)) {
    throw DamagedError(fmt::format("{}: this is not a regular file, so not a checkpoint.", path));
  }
  bytes_ = status.st_size;
}

void InputFile::read_at(int64_t offset, void* to, int64_t bytes) const {
  auto* next = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t count = ::pread(fd_.get(), next, static_cast<size_t>(std::min(bytes, kMaxIoBytes)), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      throw DamagedError(fmt::format("{}: {} bytes at offset {} cannot be read: {}.", path_, bytes, offset,
                                     count < 0 ? errno_text(errno) : "the file ends before them"));
    }
    next += count;
    offset += count;
    bytes -= count;
  }
}

void InputFile::announce(int64_t offset, int64_t bytes) const {
  (void)::posix_fadvise(fd_.get(), offset, bytes, POSIX_FADV_WILLNEED);
}

TemporaryFile::TemporaryFile(const std::string& path) : path_(path) {
  for (int attempt = 0; attempt < kNameAttempts; ++attempt) {
    temporary_path_ = path + kTemporarySuffix + random_letters();
    fd_ = FileDescriptor(::open(temporary_path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (fd_.get() >= 0) return;
    if (errno != EEXIST) break;
  }
  storage_error(temporary_path_, "the checkpoint's temporary file cannot be created", errno);
}

TemporaryFile::~TemporaryFile() {
  if (!is_published_) (void)::unlink(temporary_path_.c_str());
}

void TemporaryFile::fail(const std::string& what, const std::string& why) const {
  throw tensor::StorageError(fmt::format("{}: {}: {}.\n  Fix: {}.", path_, what, why, remedy(EIO)));
}

void TemporaryFile::reserve(int64_t bytes) const {
  // mode 0 extends the file; glibc's posix_fallocate would write every block where the file system cannot do it
  while (::fallocate(fd_.get(), 0, 0, std::max<int64_t>(bytes, 1)) != 0) {
    if (errno == EOPNOTSUPP || errno == ENOSYS) return;
    if (errno != EINTR) storage_error(path_, fmt::format("no room for a checkpoint of {} bytes", bytes), errno);
  }
}

void TemporaryFile::write_at(int64_t offset, const void* from, int64_t bytes) const {
  auto* next = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const ssize_t count = ::pwrite(fd_.get(), next, static_cast<size_t>(std::min(bytes, kMaxIoBytes)), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      storage_error(path_, fmt::format("{} bytes at offset {} of the new checkpoint cannot be written", bytes, offset),
                    count < 0 ? errno : ENOSPC);
    }
    next += count;
    offset += count;
    bytes -= count;
  }
}

void TemporaryFile::publish() {
  if (::fsync(fd_.get()) != 0) storage_error(path_, "the new checkpoint did not reach the disk", errno);
  if (!fd_.close()) storage_error(path_, "the new checkpoint cannot be closed", errno);
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    storage_error(path_, "the new checkpoint cannot be given its name", errno);
  }
  is_published_ = true;
  sync_folder(folder_of(path_));
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string errno_text(int error) { return std::generic_category().message(error); }

FileDescriptor open_folder(const std::string& folder) {
  FileDescriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) storage_error(folder, "the checkpoint folder cannot be opened", errno);
  return fd;
}

void sync_folder(const std::string& folder) {
  const FileDescriptor fd = open_folder(folder);
  // some network file systems refuse to sync a folder: there the rename itself is as durable as it gets
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    storage_error(folder, "the new checkpoint's name did not reach the disk", errno);
  }
}

}  // namespace checkpoint
