#pragma once
/// Vectors as wide as the machine's registers, in the compiler's portable vector extension, and the operations on them
/// that attention needs.

#include <cmath>
#include <cstdint>
#include <utility>

namespace tensor::cpu {

#if defined(__AVX512F__)
constexpr int64_t kVectorBytes = 64;
constexpr int kVectorRegisters = 32;
#elif defined(__AVX__)
constexpr int64_t kVectorBytes = 32;
constexpr int kVectorRegisters = 16;
#else
constexpr int64_t kVectorBytes = 16;
constexpr int kVectorRegisters = 16;
#endif

template <class C>
struct VectorTypes;
template <>
struct VectorTypes<float> {
  typedef float Vector __attribute__((vector_size(kVectorBytes)));
  typedef float Memory __attribute__((vector_size(kVectorBytes), aligned(alignof(float)), may_alias));
  using Int = int32_t;
  typedef int32_t IntVector __attribute__((vector_size(kVectorBytes)));
};
template <>
struct VectorTypes<double> {
  typedef double Vector __attribute__((vector_size(kVectorBytes)));
  typedef double Memory __attribute__((vector_size(kVectorBytes), aligned(alignof(double)), may_alias));
  using Int = int64_t;
  typedef int64_t IntVector __attribute__((vector_size(kVectorBytes)));
};

template <class C>
using Vector = typename VectorTypes<C>::Vector;
template <class C>
using IntVector = typename VectorTypes<C>::IntVector;
/// The integer as wide as C: comparing such integers selects lanes of C.
template <class C>
using LaneInt = typename VectorTypes<C>::Int;

template <class C>
constexpr int64_t kLanes = kVectorBytes / static_cast<int64_t>(sizeof(C));

/// The smallest multiple of the lanes that holds n, and the largest that n holds.
template <class C>
constexpr int64_t lanes_up(int64_t n) {
  return (n + kLanes<C> - 1) / kLanes<C> * kLanes<C>;
}
template <class C>
constexpr int64_t lanes_down(int64_t n) {
  return n / kLanes<C> * kLanes<C>;
}

template <class C>
Vector<C> load_vector(const C* from) {
  return *reinterpret_cast<const typename VectorTypes<C>::Memory*>(from);
}
template <class C>
void store_vector(C* to, Vector<C> x) {
  *reinterpret_cast<typename VectorTypes<C>::Memory*>(to) = x;
}
template <class C>
Vector<C> broadcast(C x) {
  return x - Vector<C>{};
}

/// A constant vector whose lane l is kLane(l).
template <class C, auto kLane>
IntVector<C> lane_constant() {
  return []<int64_t... kIndex>(std::integer_sequence<int64_t, kIndex...>) {
    return IntVector<C>{static_cast<LaneInt<C>>(kLane(kIndex))...};
  }
  (std::make_integer_sequence<int64_t, kLanes<C>>());
}

/// Lane l of the result is lane `l xor kDistance`.
template <class C, int64_t kDistance>
Vector<C> swap_lanes(Vector<C> x) {
  return __builtin_shuffle(x, lane_constant<C, [](int64_t lane) { return lane ^ kDistance; }>());
}
template <class C, int64_t kDistance = kLanes<C> / 2>
C max_of_lanes(Vector<C> x) {
  const Vector<C> other = swap_lanes<C, kDistance>(x);
  x = x > other ? x : other;
  if constexpr (kDistance > 1) return max_of_lanes<C, kDistance / 2>(x);
  return x[0];
}
template <class C, int64_t kDistance = kLanes<C> / 2>
C sum_of_lanes(Vector<C> x) {
  x += swap_lanes<C, kDistance>(x);
  if constexpr (kDistance > 1) return sum_of_lanes<C, kDistance / 2>(x);
  return x[0];
}

/// Transposes a square by log2(lanes) perfect shuffles of its rows.
template <class C, int64_t kLeft = kLanes<C>>
void transpose_square(Vector<C> (&rows)[kLanes<C>]) {
  constexpr int64_t kHalf = kLanes<C> / 2;
  const auto low = lane_constant<C, [](int64_t lane) { return lane / 2 + lane % 2 * kLanes<C>; }>();
  const auto high = lane_constant<C, [](int64_t lane) { return kHalf + lane / 2 + lane % 2 * kLanes<C>; }>();
  Vector<C> shuffled[kLanes<C>];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kHalf; ++i) {
    shuffled[2 * i] = __builtin_shuffle(rows[i], rows[i + kHalf], low);
    shuffled[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + kHalf], high);
  }
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes<C>; ++i) rows[i] = shuffled[i];
  if constexpr (kLeft > 2) transpose_square<C, kLeft / 2>(rows);
}

/// 2^x for x <= 0 (and up to 127); results below 2^-126 become 0, NaN stays NaN. float: within 2 ulp. Above, any
/// number.
inline Vector<float> exp2_of_nonpositive(Vector<float> x) {
  typedef uint32_t Bits __attribute__((vector_size(kVectorBytes)));
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer, which then stands in the low mantissa bits
  const Vector<float> lowest = broadcast(-127.0f);
  x = lowest > x ? lowest : x;
  const Vector<float> shifted = x + kRound;
  const Vector<float> f = x - (shifted - kRound);
  Vector<float> p = broadcast(0x1.44138ap-13f);
  p = p * f + 0x1.5f089p-10f;
  p = p * f + 0x1.3b2a54p-7f;
  p = p * f + 0x1.c6af6cp-5f;
  p = p * f + 0x1.ebfbep-3f;
  p = p * f + 0x1.62e43p-1f;
  p = p * f + 1.0f;
  const Bits exponent = (reinterpret_cast<Bits>(shifted) << 23) + (127u << 23);
  return p * reinterpret_cast<Vector<float>>(exponent);  // an exponent of -127 is the number 0
}
inline Vector<double> exp2_of_nonpositive(Vector<double> x) {
  for (int64_t lane = 0; lane < kLanes<double>; ++lane) x[lane] = std::exp2(x[lane]);
  return x;
}

}  // namespace tensor::cpu
