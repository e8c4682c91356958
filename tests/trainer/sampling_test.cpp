#include "trainer/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace trainer {
namespace {

std::map<int32_t, int> draw_many(const std::vector<double>& logits, const SamplingOptions& options, int count) {
  std::map<int32_t, int> counts;
  for (int index = 0; index < count; ++index) ++counts[sample_token(logits, options, index)];
  return counts;
}

TEST(SampleToken, IsGreedyAtTemperatureZero) {
  EXPECT_EQ(sample_token(std::vector{1.0, 5.0, 5.0, 2.0}, {.temperature = 0}, 0), 1);
}

TEST(SampleToken, FollowsTheSoftmax) {
  const std::vector<double> logits = {0.0, std::log(2.0), std::log(5.0)};
  const int count = 20'000;

  const auto counts = draw_many(logits, {.temperature = 1}, count);

  const double expected[] = {1.0 / 8, 2.0 / 8, 5.0 / 8};
  for (int32_t id = 0; id < 3; ++id) {
    const double deviation = std::sqrt(expected[id] * (1 - expected[id]) / count);
    EXPECT_NEAR(counts.at(id) / static_cast<double>(count), expected[id], 4 * deviation);
  }
}

TEST(SampleToken, KeepsTheTopK) {
  const auto counts = draw_many({0.1, 0.3, 0.2, 0.0}, {.temperature = 1, .top_k = 2}, 2'000);
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.contains(1) && counts.contains(2));
}

TEST(SampleToken, KeepsTheSmallestNucleus) {
  // Probabilities 5/8, 2/8, 1/8: 0.6 is reached by the first alone, 0.7 by two.
  const std::vector<double> logits = {0.0, std::log(2.0), std::log(5.0)};
  EXPECT_EQ(draw_many(logits, {.temperature = 1, .top_p = 0.6}, 1'000).size(), 1u);
  EXPECT_EQ(draw_many(logits, {.temperature = 1, .top_p = 0.7}, 1'000).size(), 2u);
  EXPECT_EQ(draw_many(logits, {.temperature = 1, .top_p = 1.0}, 1'000).size(), 3u);
}

TEST(SampleToken, IsAFunctionOfSeedAndIndex) {
  const std::vector<double> logits(50, 0.0);
  std::vector<int32_t> first, again, other;
  for (int index = 0; index < 20; ++index) {
    first.push_back(sample_token(logits, {.seed = 1}, index));
    again.push_back(sample_token(logits, {.seed = 1}, index));
    other.push_back(sample_token(logits, {.seed = 2}, index));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

TEST(SampleToken, NeverChoosesAnImpossibleToken) {
  const double impossible = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(draw_many({impossible, 0.0, impossible}, {.temperature = 2}, 500).size(), 1u);
}

}  // namespace
}  // namespace trainer
