#include "tensor/cpu/simd.h"

#include <gtest/gtest.h>

#include <limits>

namespace tensor::cpu {
namespace {

template <class C>
C exp2_of(C x) {
  return exp2_of_nonpositive(broadcast(x))[kLanes<C> - 1];
}

TEST(Simd, Exp2IsWithinTwoUlps) {
  for (double x = -125.99; x < 1; x += 0.00037) {
    const float rounded = static_cast<float>(x);
    const double expected = std::exp2(static_cast<double>(rounded));
    EXPECT_NEAR(exp2_of(rounded), expected, expected * 0x1p-22) << x;
    EXPECT_NEAR(exp2_of(x), std::exp2(x), std::exp2(x) * 0x1p-51) << x;
  }
}

TEST(Simd, Exp2IsExactAtZeroAndFarOut) {
  EXPECT_EQ(exp2_of(0.0f), 1);
  EXPECT_EQ(exp2_of(-1.0f), 0.5f);
  EXPECT_EQ(exp2_of(-128.0f), 0);
  EXPECT_EQ(exp2_of(-std::numeric_limits<float>::infinity()), 0);
  EXPECT_TRUE(std::isnan(exp2_of(std::numeric_limits<float>::quiet_NaN())));
}

template <class C>
class SimdOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(SimdOf, Types);

TYPED_TEST(SimdOf, ReducesLanes) {
  for (int64_t highest = 0; highest < kLanes<TypeParam>; ++highest) {
    Vector<TypeParam> x;
    for (int64_t lane = 0; lane < kLanes<TypeParam>; ++lane)
      x[lane] = static_cast<TypeParam>(lane == highest ? 100 : -lane);

    EXPECT_EQ(max_of_lanes<TypeParam>(x), 100);
    EXPECT_EQ(sum_of_lanes<TypeParam>(x), 100 + highest - kLanes<TypeParam> * (kLanes<TypeParam> - 1) / 2);
  }
}

TYPED_TEST(SimdOf, TransposesASquare) {
  constexpr int64_t kSize = kLanes<TypeParam>;
  Vector<TypeParam> rows[kSize];
  for (int64_t i = 0; i < kSize; ++i) {
    for (int64_t j = 0; j < kSize; ++j) rows[i][j] = static_cast<TypeParam>(i * kSize + j);
  }

  transpose_square<TypeParam>(rows);

  for (int64_t i = 0; i < kSize; ++i) {
    for (int64_t j = 0; j < kSize; ++j) EXPECT_EQ(rows[i][j], static_cast<TypeParam>(j * kSize + i));
  }
}

}  // namespace
}  // namespace tensor::cpu
