#include "data/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "tensor/error.h"

namespace data {

using tensor::StorageError;

namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

std::filesystem::path folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder;
}

}  // namespace

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)), temporary_(fmt::format("{}.tmp-{}", path_, ::getpid())) {
  std::error_code error;
  std::filesystem::create_directories(folder_of(path_), error);
  if (error)
    throw StorageError(fmt::format("{}: its folder cannot be created: {}.\n  Fix: choose a folder you may write to.",
                                   path_, error.message()));
  // O_EXCL: never follows or overwrites what somebody else put there. The mode is cut down by the user's umask.
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("created");
  buffer_.reserve(kBufferBytes);
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::fail(const char* doing) const {
  throw StorageError(fmt::format("{}: cannot be {}: {}.\n  Fix: check free space, quota and permissions of its folder.",
                                 temporary_, doing, std::strerror(errno)));
}

void OutputFile::write(const void* bytes, size_t count) {
  const char* from = static_cast<const char*>(bytes);
  buffer_.insert(buffer_.end(), from, from + count);
  if (buffer_.size() >= kBufferBytes) flush();
}

void OutputFile::flush() {
  constexpr size_t kMaxWrite = size_t{1} << 30;
  for (size_t done = 0; done < buffer_.size();) {
    const ssize_t written = ::write(fd_, buffer_.data() + done, std::min(buffer_.size() - done, kMaxWrite));
    if (written < 0 && errno != EINTR) fail("written");
    if (written > 0) done += static_cast<size_t>(written);
  }
  buffer_.clear();
}

void OutputFile::sync() {
  flush();
  if (::fsync(fd_) != 0) fail("written to disk");
  if (::close(std::exchange(fd_, -1)) != 0) fail("closed");
}

void OutputFile::publish() {
  CHECK(fd_ < 0 && !temporary_.empty(), "{} is synced once before it is published", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("renamed");
  temporary_.clear();
  const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;  // a folder we may write but not read: the rename stands
  ::fsync(folder);
  ::close(folder);
}

}  // namespace data
