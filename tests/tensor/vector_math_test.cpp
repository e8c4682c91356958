#include "tensor/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <limits>

namespace tensor::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Largest error over floats of all sizes up to `limit` and both signs, in units in the last place of the result.
template <class F, class G>
double worst_ulps(float limit, F computed, G exact) {
  double worst = 0;
  for (uint32_t bits = 0; bits < std::bit_cast<uint32_t>(limit); bits += 4'099) {
    for (const float x : {std::bit_cast<float>(bits), -std::bit_cast<float>(bits)}) {
      const double expected = exact(static_cast<double>(x));
      if (!std::isfinite(static_cast<float>(expected))) continue;
      int exponent = 0;
      std::frexp(expected, &exponent);
      const double ulp = std::ldexp(1.0, std::max(exponent - 24, -149));
      worst = std::max(worst, std::abs(static_cast<double>(computed(x)) - expected) / ulp);
    }
  }
  return worst;
}

TEST(VectorMath, ExpIsWithinTwoUlps) {
  EXPECT_LE(worst_ulps(
                200.0f, [](float x) { return math::exp(x); }, [](double x) { return std::exp(x); }),
            2.0);
}

TEST(VectorMath, ExpOfNonpositiveIsWithinTwoUlpsOrBelowTheSmallestNormal) {
  const auto computed = [](float x) { return x <= -87.0f ? std::exp(x) : math::exp_of_nonpositive(std::min(x, 0.0f)); };
  EXPECT_LE(worst_ulps(200.0f, computed, [](double x) { return std::exp(std::min(x, 0.0)); }), 2.0);
  EXPECT_EQ(math::exp_of_nonpositive(-88.0f), 0.0f);
  EXPECT_EQ(math::exp_of_nonpositive(-kInfinity), 0.0f);
  EXPECT_EQ(math::exp_of_nonpositive(0.0f), 1.0f);
}

TEST(VectorMath, TanhIsWithinFourUlps) {
  EXPECT_LE(worst_ulps(
                100.0f, [](float x) { return math::tanh(x); }, [](double x) { return std::tanh(x); }),
            4.0);
}

TEST(VectorMath, ErfIsWithinFourUlps) {
  EXPECT_LE(worst_ulps(
                100.0f, [](float x) { return math::erf(x); }, [](double x) { return std::erf(x); }),
            4.0);
}

TEST(VectorMath, IsRightAtInfinity) {
  EXPECT_EQ(math::exp(kInfinity), kInfinity);
  EXPECT_EQ(math::exp(1e30f), kInfinity);
  EXPECT_EQ(math::exp(-kInfinity), 0.0f);
  EXPECT_EQ(math::tanh(kInfinity), 1.0f);
  EXPECT_EQ(math::tanh(-kInfinity), -1.0f);
  EXPECT_EQ(math::erf(kInfinity), 1.0f);
  EXPECT_EQ(math::erf(-kInfinity), -1.0f);
}

TEST(VectorMath, KeepsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(math::exp(nan)));
  EXPECT_TRUE(std::isnan(math::exp_of_nonpositive(nan)));
  EXPECT_TRUE(std::isnan(math::tanh(nan)));
  EXPECT_TRUE(std::isnan(math::erf(nan)));
}

TEST(VectorMath, KeepsTheSignOfZero) {
  EXPECT_TRUE(std::signbit(math::tanh(-0.0f)));
  EXPECT_TRUE(std::signbit(math::erf(-0.0f)));
}

}  // namespace
}  // namespace tensor::cpu
