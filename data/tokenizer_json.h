#pragma once
/// What a Hugging Face tokenizer.json says, for the byte-level BPE that we support.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "data/bpe.h"

namespace data {

struct AddedToken {
  int32_t id;
  std::string content;
  bool strips_left;    ///< takes the white space before it along
  bool strips_right;   ///< takes the white space after it along
  bool is_normalized;  ///< looked for after all the others
};

/// Cuts a text by a pattern.
struct SplitStep {
  std::string pattern;
  bool keeps_gaps = true;  ///< what lies between matches becomes pieces too
};

struct TokenizerSpec {
  std::vector<AddedToken> added_tokens;
  std::vector<SplitStep> splits;  ///< each cuts the pieces of the one before
  bool adds_prefix_space = false;
  std::optional<size_t> prefix_space_before_split;  ///< which split comes after the prefix space; nullopt: none does
  StringMap<int32_t> vocab;                         ///< keys: the bytes that a token stands for
  int32_t num_ids = 0;                              ///< largest id + 1, added tokens included
  std::array<int32_t, 256> byte_ids;
  std::vector<Merge> merges;
  bool ignore_merges = false;  ///< a piece that is a token needs no merging
};

/// Throws DataError, naming the field, for what is wrong or not supported.
TokenizerSpec read_tokenizer_json(const std::string& path);

/// The bytes behind a token written in GPT-2's byte alphabet (each byte as one printable character); nullopt when it
/// uses other characters.
std::optional<std::string> from_byte_alphabet(std::string_view token);

}  // namespace data
