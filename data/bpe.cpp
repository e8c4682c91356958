#include "data/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>

#include "tensor/error.h"

namespace data {
namespace {

constexpr size_t kShortWord = 32;  // bytes: below, scanning for the best pair beats a heap
constexpr int32_t kNoMerge = std::numeric_limits<int32_t>::max();

uint64_t pack(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

uint64_t hash(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;
  return pair ^ pair >> 32;
}

/// A merge that was possible when it was queued.
struct Candidate {
  int32_t rank;
  int32_t position;  ///< of the left symbol
  int32_t left, right, merged;

  bool operator<(const Candidate& other) const {  // the queue's top is the greatest: lowest rank, then leftmost
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

/// Symbols of a long word, as a linked list over the positions of its bytes.
struct Symbol {
  int32_t id;              ///< -1: merged into its left neighbour
  int32_t previous, next;  ///< -1: none
};

}  // namespace

Bpe::Bpe(const std::array<int32_t, 256>& byte_ids, std::span<const Merge> merges) : byte_ids_(byte_ids) {
  table_.resize(std::bit_ceil(2 * merges.size() + 2));
  for (size_t i = 0; i < merges.size(); ++i) {
    const uint64_t pair = pack(merges[i].left, merges[i].right);
    slot(pair) = {.pair = pair, .rank = static_cast<int32_t>(i), .merged = merges[i].merged};
  }
}

Bpe::Entry& Bpe::slot(uint64_t pair) {
  size_t i = hash(pair) & (table_.size() - 1);
  while (table_[i].pair != kEmpty && table_[i].pair != pair) i = (i + 1) & (table_.size() - 1);
  return table_[i];
}

const Bpe::Entry* Bpe::find(int32_t left, int32_t right) const {
  const uint64_t pair = pack(left, right);
  for (size_t i = hash(pair) & (table_.size() - 1);; i = (i + 1) & (table_.size() - 1)) {
    if (table_[i].pair == pair) return &table_[i];
    if (table_[i].pair == kEmpty) return nullptr;
  }
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  CHECK(word.size() < size_t{1} << 31, "a word of {} bytes", word.size());
  word.size() <= kShortWord ? encode_short(word, ids) : encode_long(word, ids);
}

void Bpe::encode_short(std::string_view word, std::vector<int32_t>& ids) const {
  std::array<int32_t, kShortWord> symbols;
  std::array<int32_t, kShortWord> ranks;  // of the pair that begins here
  std::array<int32_t, kShortWord> merged;
  size_t count = word.size();
  for (size_t i = 0; i < count; ++i) symbols[i] = byte_ids_[static_cast<unsigned char>(word[i])];
  const auto rate = [&](size_t i) {
    const Entry* entry = i + 1 < count ? find(symbols[i], symbols[i + 1]) : nullptr;
    ranks[i] = entry ? entry->rank : kNoMerge;
    merged[i] = entry ? entry->merged : 0;
  };
  for (size_t i = 0; i < count; ++i) rate(i);
  while (count > 1) {
    const size_t best = std::min_element(ranks.begin(), ranks.begin() + count) - ranks.begin();
    if (ranks[best] == kNoMerge) break;
    symbols[best] = merged[best];
    std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
    std::copy(ranks.begin() + best + 2, ranks.begin() + count, ranks.begin() + best + 1);
    std::copy(merged.begin() + best + 2, merged.begin() + count, merged.begin() + best + 1);
    --count;
    rate(best);
    if (best > 0) rate(best - 1);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + count);
}

void Bpe::encode_long(std::string_view word, std::vector<int32_t>& ids) const {
  const auto count = static_cast<int32_t>(word.size());
  std::vector<Symbol> symbols(count);
  for (int32_t i = 0; i < count; ++i)
    symbols[i] = {
        .id = byte_ids_[static_cast<unsigned char>(word[i])], .previous = i - 1, .next = i + 1 < count ? i + 1 : -1};

  std::vector<Candidate> storage;
  storage.reserve(word.size());
  std::priority_queue<Candidate> queue({}, std::move(storage));
  const auto propose = [&](int32_t position) {
    if (position < 0 || symbols[position].next < 0) return;
    const int32_t left = symbols[position].id, right = symbols[symbols[position].next].id;
    if (const Entry* entry = find(left, right)) queue.push({entry->rank, position, left, right, entry->merged});
  };
  for (int32_t i = 0; i < count; ++i) propose(i);
  for (; !queue.empty();) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.position];
    if (left.id != best.left || left.next < 0 || symbols[left.next].id != best.right) continue;  // merged since
    Symbol& right = symbols[left.next];
    left.id = best.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = best.position;
    propose(left.previous);
    propose(best.position);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace data
