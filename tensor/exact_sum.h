#pragma once
/// A sum of squares that does not depend on how its elements are cut over calls, threads or ranks, nor on the order of
/// addition: the gradient norm, and with it clipping, is bitwise the same on every layout.
///
/// All parts agree on the largest magnitude first. Elements are scaled by a power of two that brings it into [1, 2);
/// each square, rounded to fp64 once, is rounded to a whole number of 2^-78, and whole numbers add up exactly. An
/// element loses at most 2^-79 of the largest square: all of them together no more than rounding the sum to fp64 does,
/// up to 2^26 elements, and 2^-39 of the sum at 2^40. (After Demmel & Nguyen, "Parallel reproducible summation".)

#include <array>
#include <cstdint>

namespace tensor {

class ExactSum {
 public:
  __extension__ using Int128 = __int128;

  /// Empty. `max_abs`: the largest |element| over all parts of the sum, on all ranks. 0, infinity and NaN are fine.
  explicit ExactSum(double max_abs = 0);

  /// False where no element can change value(): all are 0, or one is infinite or NaN.
  bool needs_elements() const;
  /// What elements are multiplied by before they are squared.
  double scale() const { return scale_; }
  /// Adds (square of a scaled element) / 2^-78. Room for 2^47 elements.
  void add(Int128 count) { count_ += count; }

  /// The other has the same max_abs.
  ExactSum& operator+=(const ExactSum& other);

  /// For the way through an all_reduce(sum) of int64: limbs of up to 2^31 ranks add up without overflow.
  static constexpr int kNumLimbs = 4;
  using Limbs = std::array<int64_t, kNumLimbs>;
  Limbs limbs() const;
  static ExactSum from_limbs(double max_abs, const Limbs& limbs);

  /// The sum, rounded once: infinity beyond fp64's range, NaN where max_abs is.
  double value() const;
  /// Its square root, which is finite wherever max_abs is.
  double root() const;

 private:
  double max_abs_;
  int exponent_ = 0;  // of max_abs
  double scale_ = 1;
  Int128 count_ = 0;
};

/// x = s * 2^-38 + f * 2^-78 + what is dropped, for x in [0, 4): adding kCoarse (kFine) to x (to what s leaves of it)
/// rounds it there, and then s (f) stands in the low bits of the number, relative to the constant's own.
struct SquareSplit {
  static constexpr int kCoarseExponent = -38;
  static constexpr int kFineExponent = -78;
  static constexpr double kCoarse = 0x1.8p52 * 0x1p-38;
  static constexpr double kFine = 0x1.8p52 * 0x1p-78;
};

}  // namespace tensor
