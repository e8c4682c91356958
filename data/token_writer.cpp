#include "data/token_writer.h"

#include <algorithm>

#include "tensor/error.h"

namespace data {

TokenWriter::TokenWriter(const std::string& prefix, TokenDtype dtype, int64_t max_sequence)
    : tokens_(prefix + ".bin"), index_(prefix + ".idx"), dtype_(dtype), max_sequence_(max_sequence) {
  CHECK(dtype == TokenDtype::u16 || dtype == TokenDtype::i32, "tokens are written as u16 or i32, not {}", name(dtype));
}

void TokenWriter::add_document(std::span<const int32_t> ids) {
  if (dtype_ == TokenDtype::u16) {
    narrow_.assign(ids.begin(), ids.end());
    tokens_.write(narrow_.data(), narrow_.size() * sizeof(uint16_t));
  } else {
    tokens_.write(ids.data(), ids.size_bytes());
  }
  const auto count = static_cast<int64_t>(ids.size());
  for (int64_t done = 0; done < count; done += max_sequence_)
    lengths_.push_back(static_cast<int32_t>(std::min(max_sequence_, count - done)));
  document_bounds_.push_back(static_cast<int64_t>(lengths_.size()));
  num_tokens_ += count;
}

void TokenWriter::write_index() {
  index_.write("MMIDIDX\0\0", 9);
  index_.put<uint64_t>(1);
  index_.put<uint8_t>(dtype_ == TokenDtype::u16 ? 8 : 4);
  index_.put<uint64_t>(lengths_.size());
  index_.put<uint64_t>(document_bounds_.size());
  index_.write(lengths_.data(), lengths_.size() * sizeof(int32_t));
  int64_t offset = 0;
  for (const int32_t length : lengths_) {
    index_.put<int64_t>(offset);
    offset += length * size_of(dtype_);
  }
  index_.write(document_bounds_.data(), document_bounds_.size() * sizeof(int64_t));
}

void TokenWriter::publish() {
  write_index();
  tokens_.sync();
  index_.sync();
  tokens_.publish();
  index_.publish();
}

}  // namespace data
