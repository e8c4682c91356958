#pragma once
/// A folder that lives as long as a test, and files in it.

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace tests {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "data_test_XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path(const std::string& name = "") const { return (path_ / name).string(); }

  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  template <class T>
  std::string write(const std::string& name, const std::vector<T>& values) const {
    return write(name, std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string golden(const std::string& name) {
  return std::string(TRAINER_SOURCE_DIR) + "/tests/data/golden/" + name;
}

/// Little-endian bytes of an index or header, put together number by number.
class Bytes {
 public:
  template <class T>
  Bytes& put(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Bytes& put_text(std::string_view text) {
    text_.append(text);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Parts of a Megatron index, right for `lengths` unless a test makes one wrong.
struct IndexParts {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t dtype = 8;
  std::vector<int32_t> lengths;
  std::vector<int64_t> offsets, documents;
  uint64_t num_sequences, num_bounds;

  /// u16 sequences of these lengths, each a document.
  explicit IndexParts(std::vector<int32_t> sequence_lengths) : lengths(std::move(sequence_lengths)) {
    int64_t offset = 0;
    documents = {0};
    for (const int32_t length : lengths) {
      offsets.push_back(offset);
      offset += 2 * length;
      documents.push_back(documents.back() + 1);
    }
    num_sequences = lengths.size();
    num_bounds = documents.size();
  }

  std::string text() const {
    Bytes bytes;
    bytes.put_text(magic).put(version).put(dtype).put(num_sequences).put(num_bounds);
    for (const int32_t length : lengths) bytes.put(length);
    for (const int64_t offset : offsets) bytes.put(offset);
    for (const int64_t document : documents) bytes.put(document);
    return bytes.text();
  }
};

}  // namespace tests
