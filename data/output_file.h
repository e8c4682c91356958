#pragma once
/// A file that appears under its name complete, or not at all.

#include <cstdint>
#include <string>
#include <vector>

namespace data {

class OutputFile {
 public:
  /// Opens a temporary file beside `path`, creating its folder where needed. Throws StorageError.
  explicit OutputFile(std::string path);
  ~OutputFile();  ///< removes the temporary file unless published
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* bytes, size_t count);  ///< buffered

  template <class T>
  void put(T value) {
    write(&value, sizeof value);
  }

  void sync();     ///< everything written is on disk when it returns
  void publish();  ///< after sync(): renames to `path`, replacing what was there

  const std::string& path() const { return path_; }

 private:
  void flush();
  [[noreturn]] void fail(const char* doing) const;

  std::string path_, temporary_;
  int fd_ = -1;
  std::vector<char> buffer_;
};

}  // namespace data
