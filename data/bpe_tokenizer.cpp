#include "data/bpe_tokenizer.h"

#include <algorithm>

#include "data/utf8.h"
#include "tensor/error.h"

namespace data {

using tensor::DataError;

namespace {

std::vector<const AddedToken*> select(const std::vector<AddedToken>& tokens, bool is_normalized) {
  std::vector<const AddedToken*> selected;
  for (const AddedToken& token : tokens)
    if (token.is_normalized == is_normalized) selected.push_back(&token);
  return selected;
}

/// Ids of words seen before. Words repeat (Zipf), and merging is what costs. Bounded: a full cache stays as it is.
class WordCache {
 public:
  struct Ids {
    uint32_t begin, count;
  };
  static constexpr size_t kMaxWords = size_t{1} << 17, kMaxWordBytes = 64;

  /// Appends the ids of `word`; false: not known.
  bool append(std::string_view word, std::vector<int32_t>& ids) const {
    const auto found = words_.find(word);
    if (found == words_.end()) return false;
    const auto begin = pool_.begin() + found->second.begin;
    ids.insert(ids.end(), begin, begin + found->second.count);
    return true;
  }
  void insert(std::string_view word, std::span<const int32_t> ids) {
    if (words_.size() >= kMaxWords || word.size() > kMaxWordBytes) return;
    words_.emplace(word, Ids{static_cast<uint32_t>(pool_.size()), static_cast<uint32_t>(ids.size())});
    pool_.insert(pool_.end(), ids.begin(), ids.end());
  }

 private:
  StringMap<Ids> words_;
  std::vector<int32_t> pool_;
};

}  // namespace

class BpeEncoder final : public Tokenizer::Encoder {
 public:
  explicit BpeEncoder(const BpeTokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void encode(std::string_view text, std::vector<int32_t>& ids) override {
    scratch_.look_at(text);
    if (valid_utf8_prefix(text) == text.size()) return find_added(text, 0, ids);
    find_added(repair_utf8(text), 0, ids);
  }

 private:
  /// Cuts `text` at the added tokens of pass `pass`, and what lies between them at those of the next.
  void find_added(std::string_view text, size_t pass, std::vector<int32_t>& ids) {
    if (pass == tokenizer_.finders_.size()) return split(text, 0, ids);
    const AddedTokenFinder& finder = tokenizer_.finders_[pass];
    size_t done = 0;
    for (auto found = finder.find(text, 0); found.token; found = finder.find(text, found.end)) {
      size_t begin = found.begin, end = found.end;
      if (found.token->strips_left) begin = std::max(done, begin - white_space_at_end(text.substr(0, begin)));
      if (found.token->strips_right) end += white_space_at_begin(text.substr(end));
      if (done < begin) find_added(text.substr(done, begin - done), pass + 1, ids);
      ids.push_back(found.token->id);
      done = end;
    }
    if (done < text.size()) find_added(text.substr(done), pass + 1, ids);
  }

  /// Cuts `piece` by the patterns from `step` on.
  void split(std::string_view piece, size_t step, std::vector<int32_t>& ids) {
    const TokenizerSpec& spec = tokenizer_.spec_;
    const size_t prefix_step = spec.prefix_space_before_split.value_or(tokenizer_.splits_.size());
    if (step != prefix_step || !spec.adds_prefix_space || piece.empty() || piece.front() == ' ')
      return match(piece, step, ids);
    std::string spaced;
    spaced.reserve(piece.size() + 1);
    spaced.push_back(' ');
    spaced.append(piece);
    match(spaced, step, ids);
  }

  void match(std::string_view piece, size_t step, std::vector<int32_t>& ids) {
    if (step == tokenizer_.splits_.size()) return encode_word(piece, ids);
    const BpeTokenizer::Split& pattern = tokenizer_.splits_[step];
    size_t done = 0;
    while (done < piece.size()) {
      const auto found = pattern.regex.find(piece, done, scratch_);
      const size_t begin = found ? found->begin : piece.size();
      if (done < begin && pattern.keeps_gaps) split(piece.substr(done, begin - done), step + 1, ids);
      if (!found) break;
      split(piece.substr(begin, found->end - begin), step + 1, ids);
      done = found->end;
    }
  }

  void encode_word(std::string_view word, std::vector<int32_t>& ids) {
    if (word.empty() || cache_.append(word, ids)) return;
    const size_t begin = ids.size();
    const auto whole =
        tokenizer_.spec_.ignore_merges ? tokenizer_.spec_.vocab.find(word) : tokenizer_.spec_.vocab.end();
    if (whole != tokenizer_.spec_.vocab.end()) {
      ids.push_back(whole->second);
    } else {
      tokenizer_.bpe_.encode(word, ids);
    }
    cache_.insert(word, std::span(ids).subspan(begin));
  }

  const BpeTokenizer& tokenizer_;
  Regex::Scratch scratch_;
  WordCache cache_;
};

BpeTokenizer::BpeTokenizer(TokenizerSpec spec, const std::string& path)
    : spec_(std::move(spec)), path_(path), bpe_(spec_.byte_ids, spec_.merges), texts_(spec_.num_ids) {
  for (const SplitStep& step : spec_.splits)
    splits_.push_back({.regex = Regex(step.pattern, path + ": pre_tokenizer"), .keeps_gaps = step.keeps_gaps});
  for (const bool is_normalized : {false, true}) {
    const auto tokens = select(spec_.added_tokens, is_normalized);
    if (!tokens.empty()) finders_.emplace_back(tokens);
  }
  const auto place = [&](int32_t id, const std::string& bytes) {
    if (texts_[id] && *texts_[id] != bytes)
      throw DataError(
          fmt::format("{}: two tokens have id {}.\n  Fix: the file was edited by hand; save it again with "
                      "`tokenizers`.",
                      path, id));
    texts_[id] = bytes;
  };
  for (const auto& [bytes, id] : spec_.vocab) place(id, bytes);
  for (const AddedToken& token : spec_.added_tokens) place(token.id, token.content);
}

std::unique_ptr<Tokenizer::Encoder> BpeTokenizer::make_encoder() const { return std::make_unique<BpeEncoder>(*this); }

std::string BpeTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= texts_.size())
      throw DataError(
          fmt::format("{}: id {} is outside its vocabulary of {}.\n"
                      "  Fix: use the tokenizer that the tokens were made with.",
                      path_, id, texts_.size()));
    if (texts_[id]) text += *texts_[id];
  }
  return text;
}

std::optional<int32_t> BpeTokenizer::token_id(std::string_view token) const {
  for (const AddedToken& added : spec_.added_tokens)
    if (added.content == token) return added.id;
  return std::nullopt;
}

std::optional<int32_t> BpeTokenizer::eod_id() const {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "<EOS>"})
    if (const auto id = token_id(name)) return id;
  return std::nullopt;
}

}  // namespace data
