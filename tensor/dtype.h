#pragma once
/// Element types, and what arithmetic on each is done in.

#include <cstdint>
#include <cstring>
#include <string>

namespace tensor {

enum class Dtype : uint8_t { fp32, bf16, fp64, int32, int64 };

int64_t size_of(Dtype dtype);
std::string to_string(Dtype dtype);

/// Statistics, losses and log-sum-exps of a tensor are kept in this type: fp64 for fp64, else fp32.
constexpr Dtype accumulator_of(Dtype dtype) { return dtype == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32; }

/// Upper half of an IEEE fp32. Conversion rounds to nearest even and keeps NaN a NaN.
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float x) {
    uint32_t u;
    std::memcpy(&u, &x, sizeof u);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(is_nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const {
    const uint32_t u = static_cast<uint32_t>(bits) << 16;
    float x;
    std::memcpy(&x, &u, sizeof x);
    return x;
  }
};

template <class T>
struct dtype_of_type;
template <>
struct dtype_of_type<float> {
  static constexpr Dtype value = Dtype::fp32;
};
template <>
struct dtype_of_type<bfloat16> {
  static constexpr Dtype value = Dtype::bf16;
};
template <>
struct dtype_of_type<double> {
  static constexpr Dtype value = Dtype::fp64;
};
template <>
struct dtype_of_type<int32_t> {
  static constexpr Dtype value = Dtype::int32;
};
template <>
struct dtype_of_type<int64_t> {
  static constexpr Dtype value = Dtype::int64;
};
template <class T>
constexpr Dtype dtype_of = dtype_of_type<T>::value;

/// The type arithmetic on T is done in: float for bfloat16, else T.
template <class T>
struct compute_type {
  using type = T;
};
template <>
struct compute_type<bfloat16> {
  using type = float;
};
template <class T>
using compute_t = typename compute_type<T>::type;

}  // namespace tensor
