#pragma once
/// Byte-pair encoding of one word: the pair of neighbours that was learned first is merged first.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace data {

/// Lets a map with string keys be asked with a string_view.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
template <class T>
using StringMap = std::unordered_map<std::string, T, StringHash, std::equal_to<>>;

struct Merge {
  int32_t left, right, merged;  ///< ids
};

class Bpe {
 public:
  /// `byte_ids`: the id of each single byte, -1 where it has none. `merges`: first learned first.
  Bpe(const std::array<int32_t, 256>& byte_ids, std::span<const Merge> merges);

  /// Appends the ids of `word`. O(n log n).
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

 private:
  struct Entry {
    uint64_t pair = kEmpty;  ///< left << 32 | right
    int32_t rank = 0, merged = 0;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  const Entry* find(int32_t left, int32_t right) const;
  Entry& slot(uint64_t pair);
  void encode_short(std::string_view word, std::vector<int32_t>& ids) const;
  void encode_long(std::string_view word, std::vector<int32_t>& ids) const;

  std::array<int32_t, 256> byte_ids_;
  std::vector<Entry> table_;  ///< open addressing; a power of two, at most half full
};

}  // namespace data
