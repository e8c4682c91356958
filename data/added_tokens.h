#pragma once
/// Finds special and added tokens that are written out in a text.

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "data/tokenizer_json.h"

namespace data {

class AddedTokenFinder {
 public:
  /// Keeps pointers into `tokens`.
  explicit AddedTokenFinder(std::span<const AddedToken* const> tokens);

  struct Found {
    const AddedToken* token;
    size_t begin, end;
  };
  /// The leftmost token at or after `start`, the longest of those that begin there; token = null: none. The white space
  /// that the token takes along is not included.
  Found find(std::string_view text, size_t start) const;

  bool empty() const { return is_empty_; }

 private:
  std::array<std::vector<const AddedToken*>, 256> by_first_byte_;  ///< longest first
  bool is_empty_;
};

/// Number of bytes of white space at the end, and at the beginning, of `text`.
size_t white_space_at_end(std::string_view text);
size_t white_space_at_begin(std::string_view text);

}  // namespace data
