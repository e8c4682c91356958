#pragma once
/// Files as descriptors, with every return checked. Errors name the file and what the system said.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace checkpoint {

/// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  bool close();  ///< false where the system reports an error, which may be the first news of a failed write

 private:
  int fd_ = -1;
};

/// A regular file opened to be read, with the size it had then.
class InputFile {
 public:
  explicit InputFile(
      const std::string& path);  ///< CheckpointError where there is none; StorageError where closed to us

  int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  void read_at(int64_t offset, void* to, int64_t bytes) const;  ///< DamagedError where the bytes are not there
  void announce(int64_t offset, int64_t bytes) const;           ///< will be read soon: a hint to the system

 private:
  std::string path_;
  FileDescriptor fd_;
  int64_t bytes_ = 0;
};

/// A file in the making, under another name in the folder of `path` until publish(). Removed if that never happens.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;

  const std::string& temporary_path() const { return temporary_path_; }
  void reserve(int64_t bytes) const;  ///< disk blocks, so that a full disk shows before the work and not after it
  void write_at(int64_t offset, const void* from, int64_t bytes) const;
  void publish();  ///< to disk, closed, renamed to `path`, the name to disk too

  [[noreturn]] void fail(const std::string& what, const std::string& why) const;

 private:
  std::string path_;
  std::string temporary_path_;
  FileDescriptor fd_;
  bool is_published_ = false;
};

std::string folder_of(const std::string& path);  ///< "." for a bare name
std::string errno_text(int error);               ///< "No space left on device"
/// A folder opened for *at() calls; StorageError where that is impossible.
FileDescriptor open_folder(const std::string& folder);
void sync_folder(const std::string& folder);

/// What comes after the published name in the name of a temporary file.
constexpr const char* kTemporarySuffix = ".tmp-";

}  // namespace checkpoint
