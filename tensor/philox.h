#pragma once
/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11): a random function of a counter
/// and a key, with no state. Every random number of a run is drawn from it by what it is *for*, so that no number
/// depends on how the run is laid out over ranks and threads.

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace tensor {

struct Philox {
  using Counter = std::array<uint32_t, 4>;
  using Key = std::array<uint32_t, 2>;

  /// Scalars and unrolled rounds, so that a loop over draws vectorises.
  static constexpr Counter draw(const Counter& counter, const Key& key) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<uint32_t>(p1);
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {c0, c1, c2, c3};
  }

  static constexpr Key key(uint64_t seed) { return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}; }
  static constexpr Counter counter(uint64_t low, uint64_t high) {
    return {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
            static_cast<uint32_t>(high >> 32)};
  }
};

/// 64-bit FNV-1a, to key random numbers by name.
constexpr uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// Uniform in [0, 1) with 32 bits.
constexpr double to_uniform(uint32_t bits) { return bits * 0x1p-32; }

/// Two normals from four words of Philox by Box-Muller, in fp64 so that all dtypes round the same number.
inline std::array<double, 2> to_normals(const Philox::Counter& r) {
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  const uint64_t bits = (uint64_t{r[0]} << 32 | r[1]) >> 11;
  const double u1 = (static_cast<double>(bits) + 1.0) * 0x1p-53;  // (0, 1]
  const double u2 = static_cast<double>((uint64_t{r[2]} << 32 | r[3]) >> 11) * 0x1p-53;
  const double radius = std::sqrt(-2.0 * std::log(u1));
  return {radius * std::cos(kTwoPi * u2), radius * std::sin(kTwoPi * u2)};
}

}  // namespace tensor
