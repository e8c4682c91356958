#include "tensor/philox.h"

#include <gtest/gtest.h>

namespace tensor {
namespace {

// The known answers that Random123 publishes for philox4x32-10.
TEST(Philox, GivesThePublishedAnswers) {
  constexpr uint32_t kOnes = 0xffffffffu;

  EXPECT_EQ(Philox::draw({0, 0, 0, 0}, {0, 0}), (Philox::Counter{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(Philox::draw({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Philox::Counter{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(Philox::draw({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
            (Philox::Counter{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, PutsTheLowWordFirst) {
  EXPECT_EQ(Philox::key(0x1122334455667788u), (Philox::Key{0x55667788u, 0x11223344u}));
  EXPECT_EQ(Philox::counter(0x1111111122222222u, 0x3333333344444444u),
            (Philox::Counter{0x22222222u, 0x11111111u, 0x44444444u, 0x33333333u}));
}

TEST(Philox, UniformsLieBelowOne) {
  EXPECT_EQ(to_uniform(0), 0.0);
  EXPECT_LT(to_uniform(0xffffffffu), 1.0);
}

TEST(Philox, NormalsHaveMeanZeroAndVarianceOne) {
  constexpr int kDraws = 20'000;
  double sum = 0, sum_of_squares = 0, sum_of_fourth_powers = 0;
  for (uint32_t i = 0; i < kDraws; ++i) {
    for (const double x : to_normals(Philox::draw({i, 0, 0, 0}, {1, 2}))) {
      sum += x;
      sum_of_squares += x * x;
      sum_of_fourth_powers += x * x * x * x;
    }
  }

  constexpr double kCount = 2 * kDraws;  // five standard errors each
  EXPECT_NEAR(sum / kCount, 0, 5 * std::sqrt(1 / kCount));
  EXPECT_NEAR(sum_of_squares / kCount, 1, 5 * std::sqrt(2 / kCount));
  EXPECT_NEAR(sum_of_fourth_powers / kCount, 3, 5 * std::sqrt(96 / kCount));
}

TEST(HashName, Is64BitFnv1a) {
  EXPECT_EQ(hash_name(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_name("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_name("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace tensor
