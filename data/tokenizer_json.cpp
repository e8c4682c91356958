#include "data/tokenizer_json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

#include "data/byte_file.h"
#include "data/utf8.h"
#include "tensor/error.h"
#include "tensor/json_depth.h"

namespace data {

using nlohmann::json;
using tensor::DataError;

namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;
constexpr int64_t kMaxId = 1 << 24;  // ids become array indices
constexpr int kMaxDepth = 64;        // of lists in lists; those that we know lie eight deep
constexpr size_t kMaxSplits = 64;    // each cuts the pieces of the one before, by recursion
constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// A JSON value that knows where it stands, for messages.
class Node {
 public:
  Node(const json& value, std::string where, std::string path)
      : value_(value), where_(std::move(where)), path_(std::move(path)) {}

  Node operator[](const std::string& key) const {
    require(value_.is_object(), "an object");
    const auto found = value_.find(key);
    static const json null;
    return {found == value_.end() ? null : *found, where_.empty() ? key : where_ + "." + key, path_};
  }
  Node at(size_t i) const { return {value_[i], fmt::format("{}[{}]", where_, i), path_}; }
  size_t size() const {
    require(value_.is_array(), "an array");
    return value_.size();
  }
  bool is_null() const { return value_.is_null(); }
  bool is_array() const { return value_.is_array(); }
  const json& value() const { return value_; }
  std::string label() const { return fmt::format("{}: {}", path_, where_); }

  std::string text() const {
    require(value_.is_string(), "a string");
    return value_.get<std::string>();
  }
  bool flag_or(bool missing) const {
    if (is_null()) return missing;
    require(value_.is_boolean(), "true or false");
    return value_.get<bool>();
  }
  int32_t id() const {
    const bool is_id = value_.is_number_unsigned() && value_.get<uint64_t>() <= uint64_t{kMaxId};
    require(is_id, fmt::format("an id from 0 to {}", kMaxId));
    return value_.get<int32_t>();
  }
  std::string type() const { return (*this)["type"].text(); }

  [[noreturn]] void refuse(const std::string& why) const {
    std::string shown = value_.dump(-1, ' ', true, json::error_handler_t::replace);
    if (shown.size() > 60) shown = shown.substr(0, 60) + "...";
    throw DataError(fmt::format("{} = {} is not supported: {}", label(), shown, why));
  }
  void require_null(const std::string& why) const {
    if (!is_null()) refuse(why);
  }

 private:
  void require(bool holds, const std::string& wanted) const {
    if (!holds)
      throw DataError(
          fmt::format("{} must be {}, but is {}.\n  Fix: save the tokenizer again with a current `tokenizers`.",
                      label(), wanted, is_null() ? "missing" : value_.type_name()));
  }

  const json& value_;
  std::string where_, path_;
};

json parse_file(const std::string& path) {
  const ByteFile file(path, FileAccess::pread);
  if (file.size() > kMaxFileBytes)
    throw DataError(fmt::format("{}: has {} bytes; a tokenizer.json has a few million.", path, file.size()));
  std::string text(file.size(), '\0');
  file.read(0, file.size(), text.data());
  if (tensor::json_depth(text) > kMaxDepth)
    throw DataError(fmt::format("{}: its parts lie more than {} deep, which no tokenizer.json does.", path, kMaxDepth));
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    throw DataError(fmt::format("{}: is not JSON: {}\n  Fix: name a Hugging Face tokenizer.json, or use \"bytes\".",
                                path, error.what()));
  }
}

/// GPT-2's alphabet: printable Latin-1 characters stand for themselves, the other bytes for U+0100 and on.
std::array<char32_t, 256> byte_alphabet() {
  std::array<char32_t, 256> characters;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
    characters[byte] = is_printable ? byte : next++;
  }
  return characters;
}

void read_vocab(const Node& model, TokenizerSpec& spec) {
  const Node vocab = model["vocab"];
  if (!vocab.value().is_object() || vocab.value().empty()) vocab.refuse("it must map tokens to ids.");
  std::set<int32_t> seen;
  for (const auto& [token, id] : vocab.value().items()) {
    const Node node = vocab[token];
    if (!seen.insert(node.id()).second) node.refuse("another token has this id.");
    spec.num_ids = std::max(spec.num_ids, node.id() + 1);
    if (const auto bytes = from_byte_alphabet(token)) spec.vocab.emplace(*bytes, node.id());
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = spec.vocab.find(std::string(1, static_cast<char>(byte)));
    spec.byte_ids[byte] = found == spec.vocab.end() ? -1 : found->second;
    const bool occurs_in_utf8 = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
    if (spec.byte_ids[byte] < 0 && occurs_in_utf8)
      throw DataError(
          fmt::format("{} has no token for byte 0x{:02X}, so some text could not be encoded.\n"
                      "  Fix: train the tokenizer with initial_alphabet=ByteLevel.alphabet().",
                      vocab.label(), byte));
  }
}

std::pair<std::string, std::string> merge_sides(const Node& merge) {
  if (merge.is_array()) {
    if (merge.size() != 2) merge.refuse("a merge joins two tokens.");
    return {merge.at(0).text(), merge.at(1).text()};
  }
  const std::string line = merge.text();
  const size_t space = line.find(' ');
  if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
    merge.refuse("a merge is two tokens with one space between.");
  return {line.substr(0, space), line.substr(space + 1)};
}

void read_merges(const Node& model, TokenizerSpec& spec) {
  const Node merges = model["merges"];
  for (size_t i = 0; i < merges.size(); ++i) {
    const Node merge = merges.at(i);
    const auto [left, right] = merge_sides(merge);
    const auto id_of = [&](const std::string& token) {
      const auto bytes = from_byte_alphabet(token);
      const auto found = bytes ? spec.vocab.find(*bytes) : spec.vocab.end();
      if (found == spec.vocab.end()) merge.refuse(fmt::format("\"{}\" is not in model.vocab.", token));
      return found->second;
    };
    spec.merges.push_back({.left = id_of(left), .right = id_of(right), .merged = id_of(left + right)});
  }
}

void read_model(const Node& model, TokenizerSpec& spec) {
  // Old files do not say the type of a BPE.
  if (!model["type"].is_null() && model.type() != "BPE") model["type"].refuse("only \"BPE\" is.");
  if (!model["dropout"].is_null() && model["dropout"].value() != 0) model["dropout"].refuse("ids would be random.");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model[key].is_null() && model[key].value() != "") model[key].refuse("byte-level BPE has none.");
  if (model["byte_fallback"].flag_or(false)) model["byte_fallback"].refuse("byte-level BPE needs none.");
  spec.ignore_merges = model["ignore_merges"].flag_or(false);
  read_vocab(model, spec);
  read_merges(model, spec);
}

SplitStep read_split(const Node& step) {
  const Node pattern = step["pattern"];
  const std::string behavior = step["behavior"].text();
  const bool inverted = step["invert"].flag_or(false);
  if (pattern["Regex"].is_null()) pattern.refuse("only {\"Regex\": ...} is.");
  if (behavior != "Isolated" && !(behavior == "Removed" && inverted))
    step["behavior"].refuse("only \"Isolated\", and \"Removed\" with invert = true, are.");
  return {.pattern = pattern["Regex"].text(), .keeps_gaps = behavior == "Isolated"};
}

void read_byte_level(const Node& step, TokenizerSpec& spec) {
  spec.adds_prefix_space = step["add_prefix_space"].flag_or(true);
  if (!step["use_regex"].flag_or(true)) return;
  spec.prefix_space_before_split = spec.splits.size();
  spec.splits.push_back({.pattern = kGpt2Pattern});
}

void read_pre_tokenizer(const Node& root, TokenizerSpec& spec) {
  if (root.is_null()) root.refuse("byte-level BPE needs a ByteLevel pre-tokenizer.");
  std::vector<Node> steps = {root};
  if (root.type() == "Sequence") {
    const Node list = root["pretokenizers"];
    steps.clear();
    if (list.size() > kMaxSplits)
      list.refuse(fmt::format("it has {} steps; {} are the most.", list.size(), kMaxSplits));
    for (size_t i = 0; i < list.size(); ++i) steps.push_back(list.at(i));
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string type = steps[i].type();
    if (type == "ByteLevel") {
      if (i + 1 != steps.size()) steps[i].refuse("ByteLevel must be the last pre-tokenizer.");
      return read_byte_level(steps[i], spec);
    }
    if (type == "Split") {
      spec.splits.push_back(read_split(steps[i]));
    } else if (type == "Digits") {
      spec.splits.push_back({.pattern = steps[i]["individual_digits"].flag_or(false) ? R"(\p{N})" : R"(\p{N}+)"});
    } else {
      steps[i]["type"].refuse("only \"ByteLevel\", \"Split\" and \"Digits\" are.");
    }
  }
  root.refuse("the last pre-tokenizer must be ByteLevel.");
}

void read_normalizer(const Node& node) {
  if (node.is_null()) return;
  const bool is_empty = node.type() == "Sequence" && node["normalizers"].size() == 0;
  if (!is_empty)
    node.refuse(
        "it would change the text before encoding.\n  Fix: use a tokenizer without a normalizer, as those of "
        "GPT-2 and Llama 3 are.");
}

void read_post_processor(const Node& node) {
  if (node.is_null()) return;
  const std::string type = node.type();
  if (type == "Sequence") {
    const Node list = node["processors"];
    for (size_t i = 0; i < list.size(); ++i) read_post_processor(list.at(i));
    return;
  }
  // These add special tokens, which encoding leaves out, and change nothing else.
  if (type != "ByteLevel" && type != "TemplateProcessing" && type != "RobertaProcessing" && type != "BertProcessing")
    node["type"].refuse("what it does to ids is unknown.");
}

void read_added_tokens(const Node& list, TokenizerSpec& spec) {
  if (list.is_null()) return;
  for (size_t i = 0; i < list.size(); ++i) {
    const Node node = list.at(i);
    if (node["single_word"].flag_or(false)) node["single_word"].refuse("it must be false.");
    const bool is_special = node["special"].flag_or(false);
    AddedToken token{.id = node["id"].id(),
                     .content = node["content"].text(),
                     .strips_left = node["lstrip"].flag_or(false),
                     .strips_right = node["rstrip"].flag_or(false),
                     .is_normalized = node["normalized"].flag_or(!is_special)};
    if (token.content.empty()) node["content"].refuse("an added token has text.");
    spec.num_ids = std::max(spec.num_ids, token.id + 1);
    spec.added_tokens.push_back(std::move(token));
  }
}

}  // namespace

std::optional<std::string> from_byte_alphabet(std::string_view token) {
  static const auto byte_of = [] {
    std::array<int, 0x200> map;
    map.fill(-1);
    const auto alphabet = byte_alphabet();
    for (int byte = 0; byte < 256; ++byte) map[alphabet[byte]] = byte;
    return map;
  }();
  std::string bytes;
  while (!token.empty()) {
    const size_t length = utf8_length(token);
    const char32_t c = utf8_decode(token);
    if (length == 0 || c >= byte_of.size() || byte_of[c] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_of[c]));
    token.remove_prefix(length);
  }
  return bytes;
}

TokenizerSpec read_tokenizer_json(const std::string& path) {
  const json document = parse_file(path);
  const Node root(document, "", path);
  if (!document.is_object() || root["model"].is_null())
    throw DataError(
        fmt::format("{}: has no \"model\", so it is no tokenizer.json.\n"
                    "  Fix: name the file that `tokenizers` saves; vocab.json and merges.txt are older forms.",
                    path));
  TokenizerSpec spec;
  root["truncation"].require_null("text would be cut.\n  Fix: save the tokenizer after no_truncation().");
  root["padding"].require_null("ids would be added.\n  Fix: save the tokenizer after no_padding().");
  read_normalizer(root["normalizer"]);
  read_pre_tokenizer(root["pre_tokenizer"], spec);
  read_post_processor(root["post_processor"]);
  read_model(root["model"], spec);
  read_added_tokens(root["added_tokens"], spec);
  return spec;
}

}  // namespace data
