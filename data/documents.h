#pragma once
/// Cuts input files into documents, in order, a batch at a time.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/build.h"
#include "data/byte_file.h"

namespace data {

/// One document of the input: its text, or for jsonl the line that holds it.
struct RawDocument {
  std::string_view bytes;  ///< points into the mapped file
  size_t file_index;
  int64_t line;  ///< from 1; 0 for a whole file
};

class DocumentReader {
 public:
  /// Opens all inputs at once, so that a missing one is known before anything is written.
  DocumentReader(const std::vector<std::string>& paths, DocumentSplit split);

  /// The next documents, of about `batch_bytes` together; empty at the end.
  std::vector<RawDocument> next_batch(uint64_t batch_bytes);

  const std::string& path(const RawDocument& document) const { return files_[document.file_index].path(); }
  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  std::string_view take_document(std::string_view rest) const;

  std::vector<ByteFile> files_;
  DocumentSplit split_;
  uint64_t total_bytes_ = 0, bytes_read_ = 0;
  size_t file_index_ = 0;
  uint64_t position_ = 0;  ///< in the current file
  int64_t line_ = 1;
};

/// The text of a document: itself, or the value of `json_key`. Throws DataError naming file and line.
std::string document_text(const RawDocument& document, const std::string& path, const std::string& json_key);

}  // namespace data
