#pragma once
/// Random choices that are the same on every machine: std distributions are not.

#include <cstdint>
#include <initializer_list>
#include <random>

namespace fuzz {

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}

  uint64_t bits() { return bits_(); }
  size_t below(size_t n) { return static_cast<size_t>(bits_() % n); }  ///< n > 0
  bool one_in(size_t n) { return below(n) == 0; }
  template <class List>
  auto& one_of(List& list) {
    return list[below(std::size(list))];
  }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[below(list.size())];
  }

 private:
  std::mt19937_64 bits_;
};

/// Where sizes and offsets go wrong, or a small number.
inline int64_t any_number(Random& random) {
  if (random.one_in(2)) return static_cast<int64_t>(random.below(64));
  return random.one_of<int64_t>({-1, INT64_MAX, INT64_MIN, INT64_MAX - 1, 1 << 24, 1LL << 31, 1LL << 32, 1LL << 40,
                                 (1LL << 50) + 1, (1LL << 56) + 1, -(1LL << 40), 65'535, 65'536});
}

}  // namespace fuzz
