#pragma once
/// Text to token ids and back.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace data {

class Tokenizer {
 public:
  /// Encodes one text after another, keeping what speeds up the next one (word cache, match buffers). One per thread.
  /// Must not outlive its tokenizer.
  class Encoder {
   public:
    virtual ~Encoder() = default;
    /// Appends the ids of `text` to `ids`. Special tokens written out in the text become their ids; none are added.
    virtual void encode(std::string_view text, std::vector<int32_t>& ids) = 0;
  };

  virtual ~Tokenizer() = default;

  virtual std::unique_ptr<Encoder> make_encoder() const = 0;
  std::vector<int32_t> encode(std::string_view text) const;

  /// The bytes that the ids stand for; may end inside a UTF-8 character. Throws DataError for an id outside the
  /// vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  virtual int64_t vocab_size() const = 0;             ///< largest id + 1
  virtual std::optional<int32_t> eod_id() const = 0;  ///< token that ends a document, where the tokenizer has one
  virtual std::optional<int32_t> token_id(std::string_view token) const = 0;  ///< of a special or added token
};

/// `name` is "bytes" (256 ids, one per byte) or the path of a Hugging Face tokenizer.json with a byte-level BPE, as
/// GPT-2 and Llama 3 have. Throws DataError, naming the field, for a file that asks for anything else.
///
/// Ids equal those of the `tokenizers` package with add_special_tokens=False. Text that is not UTF-8 is encoded as if
/// each broken part were U+FFFD; "bytes" keeps every byte.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name);

}  // namespace data
