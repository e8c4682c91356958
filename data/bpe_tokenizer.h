#pragma once
/// The tokenizer of a Hugging Face tokenizer.json: added tokens, then patterns that cut text into words, then BPE.

#include <memory>
#include <string>
#include <vector>

#include "data/added_tokens.h"
#include "data/bpe.h"
#include "data/regex.h"
#include "data/tokenizer.h"
#include "data/tokenizer_json.h"

namespace data {

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(TokenizerSpec spec, const std::string& path);

  std::unique_ptr<Encoder> make_encoder() const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(texts_.size()); }
  std::optional<int32_t> eod_id() const override;
  std::optional<int32_t> token_id(std::string_view token) const override;

 private:
  friend class BpeEncoder;
  struct Split {
    Regex regex;
    bool keeps_gaps;
  };

  const TokenizerSpec spec_;
  const std::string path_;
  const Bpe bpe_;
  std::vector<Split> splits_;
  std::vector<AddedTokenFinder> finders_;          ///< one pass over the text each
  std::vector<std::optional<std::string>> texts_;  ///< bytes of each id; nullopt: no token has this id
};

}  // namespace data
