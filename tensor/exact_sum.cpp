#include "tensor/exact_sum.h"

#include <algorithm>
#include <cmath>

#include "tensor/error.h"

namespace tensor {

namespace {
constexpr int kLimbBits = 32;
constexpr int64_t kLimbMask = (int64_t{1} << kLimbBits) - 1;
}  // namespace

ExactSum::ExactSum(double max_abs) : max_abs_(max_abs) {
  if (!needs_elements()) return;
  exponent_ = std::max(std::ilogb(max_abs), -1023);  // subnormals: 2^1023 is the largest power of two
  scale_ = std::ldexp(1.0, -exponent_);
}

bool ExactSum::needs_elements() const { return max_abs_ > 0 && std::isfinite(max_abs_); }

ExactSum& ExactSum::operator+=(const ExactSum& other) {
  CHECK(max_abs_ == other.max_abs_ || (std::isnan(max_abs_) && std::isnan(other.max_abs_)),
        "sums of elements up to {} and up to {} have no common unit", max_abs_, other.max_abs_);
  count_ += other.count_;
  return *this;
}

ExactSum::Limbs ExactSum::limbs() const {
  Limbs limbs;
  for (int i = 0; i < kNumLimbs; ++i) {
    const auto rest = static_cast<int64_t>(count_ >> (i * kLimbBits));
    limbs[static_cast<size_t>(i)] = i + 1 < kNumLimbs ? rest & kLimbMask : rest;  // the last one carries the sign
  }
  return limbs;
}

ExactSum ExactSum::from_limbs(double max_abs, const Limbs& limbs) {
  ExactSum sum(max_abs);
  for (int i = 0; i < kNumLimbs; ++i) {
    sum.count_ += static_cast<Int128>(limbs[static_cast<size_t>(i)]) * (static_cast<Int128>(1) << (i * kLimbBits));
  }
  return sum;
}

double ExactSum::value() const {
  if (!needs_elements()) return std::abs(max_abs_);
  return std::ldexp(static_cast<double>(count_), SquareSplit::kFineExponent + 2 * exponent_);
}

double ExactSum::root() const {
  if (!needs_elements()) return std::abs(max_abs_);
  return std::ldexp(std::sqrt(std::ldexp(static_cast<double>(count_), SquareSplit::kFineExponent)), exponent_);
}

}  // namespace tensor
