#include "data/tokenizer.h"

#include "data/bpe_tokenizer.h"
#include "data/tokenizer_json.h"
#include "tensor/error.h"

namespace data {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::unique_ptr<Encoder> make_encoder() const override { return std::make_unique<ByteEncoder>(); }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id > 255)
        throw tensor::DataError(
            fmt::format("id {} is no byte.\n  Fix: use the tokenizer that the tokens were made with.", id));
      text.push_back(static_cast<char>(id));
    }
    return text;
  }

  int64_t vocab_size() const override { return 256; }
  std::optional<int32_t> eod_id() const override { return std::nullopt; }
  std::optional<int32_t> token_id(std::string_view) const override { return std::nullopt; }

 private:
  class ByteEncoder final : public Encoder {
   public:
    void encode(std::string_view text, std::vector<int32_t>& ids) override {
      for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    }
  };
};

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  make_encoder()->encode(text, ids);
  return ids;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  return std::make_unique<BpeTokenizer>(read_tokenizer_json(name), name);
}

}  // namespace data
