/// What training data is read from: token files with their indexes, tokenizers, text.

#include <filesystem>

#include "data/build.h"
#include "data/documents.h"
#include "data/token_file.h"
#include "data/tokenizer.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/target.h"
#include "tests/support/temporary_folder.h"

namespace fuzz {
namespace {

const std::string kGolden = TRAINER_SOURCE_DIR "/tests/data/golden/";

template <class T>
void append_number(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// As llm.c writes it: 256 numbers of 4 bytes, then tokens.
template <class Token>
std::string llmc_file(int32_t magic, int32_t version) {
  constexpr int32_t kNumTokens = 500;
  std::string bytes;
  for (const int32_t number : {magic, version, kNumTokens}) append_number(bytes, number);
  bytes.resize(1024);
  for (int32_t i = 0; i < kNumTokens; ++i) append_number(bytes, static_cast<Token>(i * i % 61));
  return bytes;
}

class TokensTarget final : public Target {
 public:
  explicit TokensTarget(const std::string& folder) : prefix_(folder + "/tokens") {
    for (const char* name : {"megatron_i32", "megatron_u16"}) {
      pairs_.push_back({tests::read_file(kGolden + name + ".bin"), tests::read_file(kGolden + name + ".idx")});
    }
    const std::string tokens = llmc_file<uint16_t>(20240520, 1);
    pairs_.push_back({tokens, ""});
    pairs_.push_back({llmc_file<uint32_t>(20240801, 7), ""});
    pairs_.push_back({tokens.substr(1024), ""});
  }

  void feed(Random& random) override {
    const auto& [tokens, index] = random.one_of(pairs_);
    const bool changes_tokens = index.empty() || random.one_in(4);
    tests::write_file(prefix_ + ".bin", changes_tokens ? with_other_bytes(tokens, random) : tokens);
    std::filesystem::remove(prefix_ + ".idx");
    if (!index.empty()) tests::write_file(prefix_ + ".idx", with_other_bytes(index, random));
    read({.vocab_size = random.one_of({0, 61, 65'536}),
          .eod_id = random.one_of({-1, 0, 4}),
          .access = random.one_of({data::FileAccess::mmap, data::FileAccess::pread})});
  }

 private:
  void read(const data::TokenFileOptions& options) const {
    const data::TokenFile file = data::TokenFile::open(prefix_ + ".bin", options);
    std::vector<int32_t> ids(static_cast<size_t>(file.num_tokens()));
    file.read(0, file.num_tokens(), ids.data());
    std::vector<int64_t> starts;
    file.document_starts(0, file.num_tokens(), starts);
    data::to_text(data::inspect(prefix_ + ".bin", options));
  }

  struct Pair {
    std::string tokens, index;
  };
  std::string prefix_;
  std::vector<Pair> pairs_;
};

class TokenizerTarget final : public Target {
 public:
  explicit TokenizerTarget(const std::string& folder) : path_(folder + "/tokenizer.json") {
    for (const char* name : {"gpt2_style", "llama3_style"}) {
      texts_.push_back(tests::read_file(kGolden + name + ".tokenizer.json"));
      // half of all changes would meet the vocabulary, which is most of the text
      Json json = Json::parse(texts_.back());
      vocabs_.push_back(json["model"]["vocab"]);
      json["model"]["vocab"] = nullptr;
      json["model"]["merges"].erase(json["model"]["merges"].begin() + 8, json["model"]["merges"].end());
      small_.push_back(json);
    }
  }

  void feed(Random& random) override {
    tests::write_file(path_, draw(random));
    const auto tokenizer = data::load_tokenizer(path_);
    const std::string text = with_other_bytes(kText, random);
    const std::vector<int32_t> ids = tokenizer->encode(text);
    tokenizer->decode(ids);
    tokenizer->eod_id();
  }

 private:
  inline static const std::string kText =
      "In the beginning  God's 1234 heaven\n\n\xc3\xa9t\xc3\xa9 "
      "\xf0\x9f\x98\x80<|endoftext|>aaaaaaaaaaaaaaaaaaaaaaaa\t";
  inline static const std::vector<std::string> kWords = {
      "\"",        "[",      "]",     "{",    "}",        ",",     ":", "null", "true", "Sequence", "Split",
      "ByteLevel", "Digits", "Regex", "\\\\", "\\\\p{L}", "\\\\s", "(", ")",    "*",    "+",        "?",
      "|",         "(?=",    "(?<=",  "(?!",  "{1,3}",    "[^",    "-", "a",    "."};

  std::string draw(Random& random) {
    const size_t which = random.below(texts_.size());
    if (random.one_in(8)) return with_other_bytes(texts_[which], random);
    if (random.one_in(64)) return deep(random);
    Json json = small_[which];
    if (random.one_in(2)) {
      json = with_other_values(json, random);
    } else {
      json["model"]["vocab"] = "VOCAB";
      json = Json::parse(with_other_words(json.dump(), kWords, random), nullptr, false);
    }
    if (!json.is_object() || !json["model"].is_object())
      return json.dump(-1, ' ', true, Json::error_handler_t::replace);
    json["model"]["vocab"] = random.one_in(8) ? with_other_values(vocabs_[which], random) : vocabs_[which];
    return json.dump(-1, ' ', true, Json::error_handler_t::replace);
  }

  /// Deep in one place, right in the others.
  std::string deep(Random& random) {
    static constexpr const char* kKeys[] = {"truncation", "normalizer", "pre_tokenizer", "post_processor", "decoder"};
    const std::string key = random.one_of(kKeys), mark = "\"DEEP\"";
    Json json = small_[0];
    json[key] = "DEEP";
    std::string text = json.dump();
    const size_t depth = random.below(200'000);
    std::string value = nested_lists(depth);
    if (random.one_in(2)) {
      value.clear();
      for (size_t i = 0; i < depth; ++i) value += R"({"type":"Sequence","processors":[)";
      value += R"({"type":"ByteLevel"})";
      for (size_t i = 0; i < depth; ++i) value += "]}";
    }
    return text.replace(text.find(mark), mark.size(), value);
  }

  std::string path_;
  std::vector<std::string> texts_;
  std::vector<Json> small_, vocabs_;
};

/// Text to tokenize: lines of JSON.
class DocumentsTarget final : public Target {
 public:
  explicit DocumentsTarget(const std::string& folder) : path_(folder + "/text.jsonl") {}

  void feed(Random& random) override {
    tests::write_file(path_, random.one_in(32) ? nested_lists(random.below(100'000)) : draw(random));
    data::DocumentReader reader({path_}, random.one_in(4) ? data::DocumentSplit::lines : data::DocumentSplit::jsonl);
    for (auto batch = reader.next_batch(64); !batch.empty(); batch = reader.next_batch(64)) {
      for (const data::RawDocument& document : batch) data::document_text(document, path_, "text");
    }
  }

 private:
  static std::string draw(Random& random) {
    static const std::string kLines = R"({"text": "one \u00e9 \ud83d\ude00", "id": 1}
{"meta": {"a": [1, 2.5e3, null]}, "text": "two\n"}

{"text": ""}
)";
    static const std::vector<std::string> kWords = {"{",       "}",  "[",  "]",    "\"",  "\\",
                                                    "\\ud800", "\n", "\r", "null", "text"};
    return random.one_in(2) ? with_other_bytes(kLines, random) : with_other_words(kLines, kWords, random);
  }

  std::string path_;
};

}  // namespace

std::vector<TargetEntry> data_targets() {
  const std::vector<tensor::ExitCode> refusals = {tensor::ExitCode::data};
  return {
      {"tokens", refusals, [](const std::string& folder) { return std::make_unique<TokensTarget>(folder); }},
      {"tokenizer", refusals, [](const std::string& folder) { return std::make_unique<TokenizerTarget>(folder); }},
      {"documents", refusals, [](const std::string& folder) { return std::make_unique<DocumentsTarget>(folder); }},
  };
}

}  // namespace fuzz
