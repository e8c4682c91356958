#pragma once
/// A read-only file whose size was looked up once, and whose every access is checked against that size.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "data/config.h"

namespace data {

/// Which bytes a path named when it was opened: changes when somebody rewrites or replaces the file.
struct FileIdentity {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified_ns = 0;

  bool operator==(const FileIdentity&) const = default;
};

class ByteFile {
 public:
  /// Throws DataError when `path` cannot be opened or is not a regular file. Empty files open; they cannot be mapped.
  explicit ByteFile(std::string path, FileAccess access = FileAccess::mmap);
  ~ByteFile();
  ByteFile(ByteFile&& other) noexcept;
  ByteFile& operator=(ByteFile&&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return identity_.size; }

  /// Copies bytes [offset, offset + count). Throws DataError when they are not all inside the file. Thread-safe.
  void read(uint64_t offset, uint64_t count, void* out) const;

  /// Reads one little-endian number; `offset` may be unaligned.
  template <class T>
  T load(uint64_t offset) const {
    T value;
    read(offset, sizeof(T), &value);
    return value;
  }

  /// The whole file, for FileAccess::mmap only.
  std::string_view view() const;

  /// Throws DataError when the file changed, or another took its place, since it was opened.
  void check_unchanged() const;

 private:
  std::string path_;
  int fd_ = -1;  ///< -1: mapped
  FileIdentity identity_;
  const char* mapping_ = nullptr;  ///< null: pread, or an empty file
};

/// A mapped file that is cut short, or whose disk fails, raises SIGBUS. The handler says which file, offset and rank,
/// and ends the process with ExitCode::data. A SIGBUS elsewhere keeps its usual effect. Call once, from main.
void install_sigbus_handler(int rank = 0);

}  // namespace data
