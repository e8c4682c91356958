#pragma once
/// exp, tanh and erf that the compiler vectorises when called in a plain loop (`#pragma omp simd`). float: branch-free
/// polynomials, within 2 ulp (exp) and 4 ulp (tanh, erf), right at 0 and at infinity, NaN stays NaN. double: the
/// standard library's, for proofs.

#include <bit>
#include <cmath>
#include <cstdint>

namespace tensor::cpu::math {

namespace detail {

/// x = n * log(2) + r with |r| <= log(2) / 2.
struct ReducedExponent {
  float r;
  uint32_t n;  // two's complement
};

inline ReducedExponent reduce_exponent(float x) {
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer, which then stands in the low mantissa bits
  constexpr float kLn2High = 0x1.63p-1f, kLn2Low = -0x1.bd0106p-13f;  // n * high is exact
  const float shifted = x * 0x1.715476p+0f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  return {r, std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound)};
}

/// exp(r) - 1 for |r| <= log(2) / 2, to 1e-10 of r.
inline float expm1_reduced(float r) {
  float p = 0x1.a124f2p-13f;
  p = p * r + 0x1.6d4324p-10f;
  p = p * r + 0x1.1110e0p-7f;
  p = p * r + 0x1.5554eap-5f;
  p = p * r + 0x1.555556p-3f;
  p = p * r + 0.5f;
  return p * (r * r) + r;
}

/// 2^n for n in [-126, 127].
inline float power_of_two(uint32_t n) { return std::bit_cast<float>((n + 127u) << 23); }

}  // namespace detail

inline float exp(float x) {
  x = x > 89.0f ? 89.0f : x;      // infinity comes out of the product below
  x = x < -105.0f ? -105.0f : x;  // and so does 0; both comparisons let NaN through
  const detail::ReducedExponent e = detail::reduce_exponent(x);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(e.n) >> 1);  // 2^n alone may overflow
  const float y = 1.0f + detail::expm1_reduced(e.r);
  return y * detail::power_of_two(half) * detail::power_of_two(e.n - half);
}

/// exp for x <= 0 where results below 2^-126 may become 0: softmax over logits minus their maximum.
inline float exp_of_nonpositive(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  const detail::ReducedExponent e = detail::reduce_exponent(clamped);
  const float y = (1.0f + detail::expm1_reduced(e.r)) * detail::power_of_two(e.n);
  return x < -87.0f ? 0.0f : y;
}

inline float tanh(float x) {
  float a = std::abs(x);
  a = a > 10.0f ? 10.0f : a;
  const detail::ReducedExponent e = detail::reduce_exponent(2.0f * a);
  const float scale = detail::power_of_two(e.n);
  const float expm1 = scale * detail::expm1_reduced(e.r) + (scale - 1.0f);  // of 2a; no cancellation, as a >= 0
  return std::copysign(expm1 / (expm1 + 2.0f), x);
}

inline float erf(float x) {
  const float a = std::abs(x);
  const float t = a * a;
  float s = -0x1.445f48p-17f;  // erf(a) / a - 1 on [0, 1]
  s = s * t + 0x1.d88750p-14f;
  s = s * t - 0x1.bccf66p-11f;
  s = s * t + 0x1.562a60p-8f;
  s = s * t - 0x1.b829c8p-6f;
  s = s * t + 0x1.ce2f08p-4f;
  s = s * t - 0x1.812746p-2f;
  s = s * t + 0x1.06eba8p-3f;
  const float u = a > 4.0f ? 4.0f : a;
  float l = 0x1.b77830p-20f;  // log(1 - erf(a)) on [1, 4]
  l = l * u - 0x1.825ce4p-15f;
  l = l * u + 0x1.38e5e6p-11f;
  l = l * u - 0x1.37ecc6p-8f;
  l = l * u + 0x1.b0e246p-6f;
  l = l * u - 0x1.c2e356p-4f;
  l = l * u - 0x1.437eb4p-1f;
  l = l * u - 0x1.2156fap+0f;
  l = l * u + 0x1.4fb068p-12f;
  const float tail = 1.0f - exp_of_nonpositive(l);
  return std::copysign(a > 1.0f ? tail : a + a * s, x);
}

inline double exp(double x) { return std::exp(x); }
inline double exp_of_nonpositive(double x) { return std::exp(x); }
inline double tanh(double x) { return std::tanh(x); }
inline double erf(double x) { return std::erf(x); }

}  // namespace tensor::cpu::math
