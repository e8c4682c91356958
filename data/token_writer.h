#pragma once
/// Writes a Megatron pair: PREFIX.bin, the token ids, and PREFIX.idx, where documents begin.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/output_file.h"
#include "data/token_file.h"

namespace data {

class TokenWriter {
 public:
  /// `dtype`: u16 or i32. Documents longer than max_sequence tokens are listed as several sequences.
  TokenWriter(const std::string& prefix, TokenDtype dtype, int64_t max_sequence = int64_t{1} << 30);

  void add_document(std::span<const int32_t> ids);

  /// Writes the index, syncs both files, and gives them their names, .bin first.
  void publish();

  int64_t num_documents() const { return static_cast<int64_t>(document_bounds_.size()) - 1; }
  int64_t num_tokens() const { return num_tokens_; }
  std::vector<std::string> paths() const { return {tokens_.path(), index_.path()}; }

 private:
  void write_index();

  OutputFile tokens_, index_;
  TokenDtype dtype_;
  int64_t max_sequence_;
  int64_t num_tokens_ = 0;
  std::vector<int32_t> lengths_;                ///< of sequences
  std::vector<int64_t> document_bounds_ = {0};  ///< first sequence of each document, and the end
  std::vector<uint16_t> narrow_;                ///< scratch
};

}  // namespace data
