#include "data/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "data/bpe.h"
#include "data/regex.h"
#include "data/utf8.h"
#include "tensor/error.h"
#include "tests/data/temp_folder.h"

using data::load_tokenizer;
using data::Tokenizer;
using nlohmann::json;
using testing::HasSubstr;
using tests::TempFolder;

namespace {

json golden_tokenizer(const std::string& style) {
  return json::parse(tests::read_bytes(tests::golden(style + "_style.tokenizer.json")));
}

std::vector<int32_t> encode_with(const json& tokenizer, const std::string& text) {
  const TempFolder folder;
  return load_tokenizer(folder.write("t.json", tokenizer.dump()))->encode(text);
}

/// The ids of the pieces, encoded apart and put together.
std::vector<int32_t> encode_pieces(const std::string& style, const std::vector<std::string>& pieces) {
  const auto tokenizer = load_tokenizer(tests::golden(style + "_style.tokenizer.json"));
  std::vector<int32_t> ids;
  for (const std::string& piece : pieces) {
    const auto more = tokenizer->encode(piece);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  return ids;
}

void expect_refused(const std::function<void(json&)>& change, const std::string& part) {
  json tokenizer = golden_tokenizer("gpt2");
  change(tokenizer);
  const TempFolder folder;
  const auto path = folder.write("tokenizer.json", tokenizer.dump());
  try {
    load_tokenizer(path);
    ADD_FAILURE() << "accepted, should mention: " << part;
  } catch (const tensor::DataError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith(path));
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

}  // namespace

class TokenizerGolden : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Styles, TokenizerGolden, testing::Values("gpt2", "llama3"));

TEST_P(TokenizerGolden, GivesTheIdsOfTheTokenizersPackage) {
  const auto tokenizer = load_tokenizer(tests::golden(std::string(GetParam()) + "_style.tokenizer.json"));
  const auto encoder = tokenizer->make_encoder();
  const auto cases = json::parse(tests::read_bytes(tests::golden(std::string(GetParam()) + "_style.ids.json")));
  for (int pass = 0; pass < 2; ++pass) {  // the second from the word cache
    for (const auto& item : cases) {
      std::vector<int32_t> ids;
      encoder->encode(item["text"].get<std::string>(), ids);
      EXPECT_EQ(ids, item["ids"].get<std::vector<int32_t>>()) << item["text"];
    }
  }
}

TEST_P(TokenizerGolden, DecodesToTheSameBytes) {
  const auto tokenizer = load_tokenizer(tests::golden(std::string(GetParam()) + "_style.tokenizer.json"));
  const auto cases = json::parse(tests::read_bytes(tests::golden(std::string(GetParam()) + "_style.ids.json")));
  for (const auto& item : cases) {
    const auto text = item["text"].get<std::string>();
    if (text.find("<|custom|>") != std::string::npos) continue;  // takes white space along
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

TEST_P(TokenizerGolden, EncodesBrokenUtf8AsReplacementCharacters) {
  const auto tokenizer = load_tokenizer(tests::golden(std::string(GetParam()) + "_style.tokenizer.json"));
  EXPECT_EQ(tokenizer->encode("a\xff z\xe2\x82"), tokenizer->encode("a\uFFFD z\uFFFD"));
}

TEST(Tokenizer, KnowsItsSizeAndSpecialTokens) {
  const auto tokenizer = load_tokenizer(tests::golden("gpt2_style.tokenizer.json"));
  EXPECT_EQ(tokenizer->vocab_size(), 702);
  EXPECT_EQ(tokenizer->eod_id(), 0);
  EXPECT_EQ(tokenizer->token_id("<|custom|>"), 700);
  EXPECT_EQ(tokenizer->token_id("<|nothing|>"), std::nullopt);
  EXPECT_EQ(tokenizer->encode("a <|custom|>\n b"), encode_pieces("gpt2", {"a", "<|custom|>", "b"}));
  EXPECT_THROW(tokenizer->decode(std::vector<int32_t>{702}), tensor::DataError);
  EXPECT_THROW(tokenizer->decode(std::vector<int32_t>{-1}), tensor::DataError);
}

TEST(Tokenizer, EncodesBytesAsThemselves) {
  const auto tokenizer = load_tokenizer("bytes");
  const std::string text("\0\xff z\n", 5);
  const auto ids = tokenizer->encode(text);

  EXPECT_EQ(ids, (std::vector<int32_t>{0, 255, 32, 122, 10}));
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_EQ(tokenizer->eod_id(), std::nullopt);
  EXPECT_THROW(tokenizer->decode(std::vector<int32_t>{256}), tensor::DataError);
}

TEST(Tokenizer, ReadsMergesWrittenAsLines) {
  json tokenizer = golden_tokenizer("gpt2");
  for (auto& merge : tokenizer["model"]["merges"])
    if (merge.is_array()) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  EXPECT_EQ(encode_with(tokenizer, "the beginning of words"), encode_pieces("gpt2", {"the beginning of words"}));
}

TEST(Tokenizer, AddsAPrefixSpace) {
  json tokenizer = golden_tokenizer("gpt2");
  tokenizer["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_EQ(encode_with(tokenizer, "word"), encode_pieces("gpt2", {" word"}));
  EXPECT_EQ(encode_with(tokenizer, " word"), encode_pieces("gpt2", {" word"}));
  EXPECT_TRUE(encode_with(tokenizer, "").empty());
}

TEST(Tokenizer, CutsDigitsApart) {
  json tokenizer = golden_tokenizer("gpt2");
  const json byte_level = tokenizer["pre_tokenizer"];
  tokenizer["pre_tokenizer"] = {{"type", "Sequence"},
                                {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level}}};
  EXPECT_EQ(encode_with(tokenizer, "in 1984"), encode_pieces("gpt2", {"in ", "1", "9", "8", "4"}));
}

TEST(Tokenizer, RefusesWhatItCannotDo) {
  expect_refused([](json& t) { t["model"]["type"] = "Unigram"; }, "model.type = \"Unigram\"");
  expect_refused([](json& t) { t["model"]["byte_fallback"] = true; }, "model.byte_fallback");
  expect_refused([](json& t) { t["model"]["dropout"] = 0.1; }, "model.dropout");
  expect_refused([](json& t) { t["model"]["end_of_word_suffix"] = "</w>"; }, "model.end_of_word_suffix");
  expect_refused([](json& t) { t["normalizer"] = {{"type", "NFKC"}}; }, "normalizer");
  expect_refused([](json& t) { t["truncation"] = {{"max_length", 5}}; }, "truncation");
  expect_refused([](json& t) { t["padding"] = {{"length", 5}}; }, "padding");
  expect_refused([](json& t) { t["pre_tokenizer"] = nullptr; }, "pre_tokenizer");
  expect_refused([](json& t) { t["pre_tokenizer"]["type"] = "Metaspace"; }, "pre_tokenizer.type = \"Metaspace\"");
  expect_refused([](json& t) { t["post_processor"]["type"] = "Magic"; }, "post_processor.type");
  expect_refused([](json& t) { t["added_tokens"][0]["single_word"] = true; }, "added_tokens[0].single_word");
}

TEST(Tokenizer, RefusesDamagedFiles) {
  expect_refused([](json& t) { t["model"]["vocab"]["a"] = -1; }, "model.vocab.a must be an id");
  expect_refused([](json& t) { t["model"]["vocab"]["a"] = 1e18; }, "model.vocab.a must be an id");
  expect_refused([](json& t) { t["model"]["vocab"]["a"] = "x"; }, "model.vocab.a must be an id");
  expect_refused([](json& t) { t["model"]["vocab"]["a"] = t["model"]["vocab"]["b"]; }, "another token has this id");
  expect_refused([](json& t) { t["model"]["vocab"].erase("a"); }, "no token for byte 0x61");
  expect_refused([](json& t) { t["model"]["vocab"] = json::array(); }, "model.vocab");
  expect_refused([](json& t) { t["model"].erase("merges"); }, "model.merges must be an array, but is missing");
  expect_refused([](json& t) { t["model"]["merges"][0] = "a b c"; }, "model.merges[0]");
  expect_refused([](json& t) { t["model"]["merges"][0] = {"zz", "qqq"}; }, "\"zz\" is not in model.vocab");
  expect_refused([](json& t) { t["model"]["ignore_merges"] = 1; }, "model.ignore_merges must be true or false");
  expect_refused([](json& t) { t["added_tokens"][0]["id"] = 5; }, "two tokens have id 5");
  expect_refused([](json& t) { t.erase("model"); }, "has no \"model\"");
  expect_refused([](json& t) { t = json::array(); }, "has no \"model\"");
}

TEST(Tokenizer, RefusesPartsThatLieTooDeep) {
  const size_t depth = 1'000'000;  // walking down by recursion would end the process
  const TempFolder folder;
  for (const char* key : {"truncation", "post_processor", "pre_tokenizer"}) {
    json tokenizer = golden_tokenizer("gpt2");
    tokenizer[key] = "DEEP";
    std::string text = tokenizer.dump();
    text.replace(text.find("\"DEEP\""), 6, std::string(depth, '[') + std::string(depth, ']'));
    EXPECT_THROW(load_tokenizer(folder.write("deep.json", text)), tensor::DataError) << key;
  }
}

TEST(Tokenizer, RefusesMoreStepsThanAnyTokenizerHas) {
  expect_refused(
      [](json& t) {
        const json digits = {{"type", "Digits"}};
        t["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::vector<json>(10'000, digits)}};
      },
      "it has 10000 steps");
}

TEST(Tokenizer, RefusesFilesThatAreNotJson) {
  const TempFolder folder;
  EXPECT_THROW(load_tokenizer(folder.path("missing.json")), tensor::DataError);
  EXPECT_THROW(load_tokenizer(folder.write("a.json", "")), tensor::DataError);
  EXPECT_THROW(load_tokenizer(folder.write("b.json", "{\"model\": ")), tensor::DataError);
  EXPECT_THROW(load_tokenizer(folder.path()), tensor::DataError);
}

TEST(Regex, RefusesSyntaxThatEnginesReadDifferently) {
  for (const char* pattern : {".", "^a", "a$", "\\w", "\\b", "\\h", "a++", "a{1,3}+", "(?m:a)", "(?<name>a)", "[a&&b]",
                              "[[a]]", "[]a]", "\\1", "[^\\S]", "\\pL", "(*FAIL)"})
    EXPECT_THROW(data::Regex(pattern, "t.json: pre_tokenizer"), tensor::DataError) << pattern;
  EXPECT_THROW(data::Regex("(a", "t.json: pre_tokenizer"), tensor::DataError);
}

TEST(Regex, KnowsLettersOfUnicode16) {
  const data::Regex letters("\\p{L}+", "test"), others("[^\\p{L}]+", "test"), not_letters("\\P{L}+", "test");
  data::Regex::Scratch scratch;
  const std::string text =
      "1\U000105C0\U00010D50"
      "2";  // Todhri, Garay
  scratch.look_at(text);
  EXPECT_EQ(letters.find(text, 0, scratch)->begin, 1u);
  EXPECT_EQ(letters.find(text, 0, scratch)->end, 9u);
  EXPECT_EQ(others.find(text, 0, scratch)->end, 1u);
  EXPECT_EQ(not_letters.find(text, 1, scratch)->begin, 9u);
}

TEST(Regex, MatchesLongRunsInLinearTime) {
  const data::Regex regex("\\s+(?!\\S)|\\s+|a+", "test");
  data::Regex::Scratch scratch;
  const std::string text = std::string(4'000'000, ' ') + std::string(4'000'000, 'a');
  scratch.look_at(text);
  EXPECT_EQ(regex.find(text, 0, scratch)->end, 3'999'999u);
  EXPECT_EQ(regex.find(text, 4'000'000, scratch)->end, 8'000'000u);
}

TEST(Regex, GivesUpWherePatternsTryTooManyWays) {
  const data::Regex regex("(?:a+)+[bc]", "t.json: pre_tokenizer");
  data::Regex::Scratch scratch;
  const std::string text = std::string(60, 'a') + "d";  // 2^60 ways
  scratch.look_at(text);

  EXPECT_THROW(regex.find(text, 0, scratch), tensor::DataError);
}

/// Merging by definition: again and again the first-learned pair, the leftmost of several.
static std::vector<int32_t> merge_naively(std::vector<int32_t> ids, const std::vector<data::Merge>& merges) {
  for (;;) {
    size_t best = merges.size(), at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank)
        if (merges[rank].left == ids[i] && merges[rank].right == ids[i + 1]) best = rank, at = i;
    }
    if (best == merges.size()) return ids;
    ids[at] = merges[best].merged;
    ids.erase(ids.begin() + at + 1);
  }
}

TEST(Bpe, MergesAsDefinedInShortAndLongWords) {
  std::mt19937 random(7);
  std::array<int32_t, 256> byte_ids;
  for (int i = 0; i < 256; ++i) byte_ids[i] = i;
  std::vector<data::Merge> merges;
  for (int32_t next = 256; next < 330; ++next) {
    const auto side = [&] {
      return random() % 2 ? int32_t('a' + random() % 3) : int32_t(256 + random() % (next - 255));
    };
    const int32_t left = side(), right = side();
    const bool is_known = left >= next || right >= next;
    merges.push_back({.left = is_known ? 'a' : left, .right = is_known ? next % 3 + 'a' : right, .merged = next});
  }
  const data::Bpe bpe(byte_ids, std::vector<data::Merge>(merges));
  for (const size_t length : {0, 1, 2, 3, 31, 32, 33, 34, 100, 300}) {
    std::string word;
    std::vector<int32_t> bytes, ids;
    for (size_t i = 0; i < length; ++i) word.push_back(static_cast<char>('a' + random() % 3));
    for (const char c : word) bytes.push_back(c);
    bpe.encode(word, ids);
    // A pair learned twice counts as learned last, as in the tokenizers package; keep the last of each.
    std::vector<data::Merge> last;
    for (size_t i = 0; i < merges.size(); ++i) {
      bool is_last = true;
      for (size_t j = i + 1; j < merges.size(); ++j)
        is_last &= merges[j].left != merges[i].left || merges[j].right != merges[i].right;
      if (is_last) last.push_back(merges[i]);
    }
    EXPECT_EQ(ids, merge_naively(bytes, last)) << word;
  }
}

TEST(Utf8, RepairsBrokenTextAsPythonDoes) {
  EXPECT_EQ(data::repair_utf8("a\x80z"), "a\uFFFDz");
  EXPECT_EQ(data::repair_utf8("\xe2\x82z"), "\uFFFDz");                // one for a character cut short
  EXPECT_EQ(data::repair_utf8("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(data::repair_utf8("\xf0\x9f\x98"), "\uFFFD");
  EXPECT_EQ(data::repair_utf8("\xc0\xaf"), "\uFFFD\uFFFD");  // overlong
  EXPECT_EQ(data::repair_utf8("ok \U0001F600 é"), "ok \U0001F600 é");
}
