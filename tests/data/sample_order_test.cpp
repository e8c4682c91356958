#include "data/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tensor/error.h"

using data::InTurnOrder;
using data::Permutation;
using data::SampleOrder;
using data::SampleRef;

namespace {

std::vector<uint64_t> values_of(const Permutation& permutation, uint64_t size) {
  std::vector<uint64_t> values(size);
  for (uint64_t i = 0; i < size; ++i) values[i] = permutation(i);
  return values;
}

std::vector<std::pair<int64_t, int64_t>> visits(const SampleOrder& order, int64_t begin, int64_t end) {
  std::vector<std::pair<int64_t, int64_t>> seen;
  for (int64_t n = begin; n < end; ++n) seen.emplace_back(order.at(n).source, order.at(n).index);
  return seen;
}

}  // namespace

TEST(Permutation, VisitsEveryIndexOnce) {
  for (const uint64_t size : {1, 2, 3, 4, 5, 7, 15, 16, 17, 63, 64, 65, 97, 255, 256, 257, 1000, 1009, 4096, 4097}) {
    for (const uint64_t key : {0ull, 1ull, ~0ull}) {
      auto values = values_of(Permutation(size, key, 3), size);
      std::sort(values.begin(), values.end());
      for (uint64_t i = 0; i < size; ++i) ASSERT_EQ(values[i], i) << "size " << size << " key " << key;
    }
  }
}

TEST(Permutation, StaysInsideHugeSizes) {
  const uint64_t size = (uint64_t{1} << 40) + 12345;
  const Permutation permutation(size, 7, 0);
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 1000; ++i) seen.insert(permutation(i * (size / 1000)));
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_LT(*seen.rbegin(), size);
  EXPECT_GT(*seen.rbegin(), size / 2);
}

TEST(Permutation, DependsOnKeyAndVariant) {
  const auto base = values_of(Permutation(1000, 1, 1), 1000);

  EXPECT_NE(values_of(Permutation(1000, 2, 1), 1000), base);
  EXPECT_NE(values_of(Permutation(1000, 1, 2), 1000), base);
  EXPECT_EQ(values_of(Permutation(1000, 1, 1), 1000), base);
}

/// Each (place, value) pair over many keys: counts must look like coin tosses (chi-square, 5 standard deviations).
TEST(Permutation, SendsEachPlaceEverywhereAlike) {
  constexpr int kSize = 5, kKeys = 20'000;
  double counts[kSize][kSize] = {};
  for (int key = 0; key < kKeys; ++key)
    for (int i = 0; i < kSize; ++i) ++counts[i][Permutation(kSize, key, 0)(i)];
  double chi_square = 0;
  const double expected = double{kKeys} / kSize;
  for (const auto& row : counts)
    for (const double count : row) chi_square += (count - expected) * (count - expected) / expected;
  const double degrees = (kSize - 1) * (kSize - 1);
  EXPECT_LT(chi_square, degrees + 5 * std::sqrt(2 * degrees));
}

TEST(Permutation, KeepsNoOrder) {
  const auto values = values_of(Permutation(10'000, 42, 0), 10'000);
  double correlation = 0;
  for (size_t i = 0; i < values.size(); ++i) correlation += (i / 10'000.0 - 0.5) * (values[i] / 10'000.0 - 0.5);
  EXPECT_LT(std::abs(correlation * 12 / 10'000), 5 / std::sqrt(10'000.0));
}

TEST(SampleOrder, VisitsEverySampleOncePerEpochWithoutWeights) {
  const SampleOrder order(5, {{.num_samples = 7}, {.num_samples = 1}, {.num_samples = 23}});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto seen = visits(order, epoch * 31, (epoch + 1) * 31);
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 31u);
    EXPECT_EQ(order.at(epoch * 31).epoch, epoch);
  }
  EXPECT_NE(visits(order, 0, 31), visits(order, 31, 62));
}

TEST(SampleOrder, DependsOnTheSeed) {
  const SampleOrder a(1, {{.num_samples = 100}}), b(2, {{.num_samples = 100}});
  EXPECT_NE(visits(a, 0, 100), visits(b, 0, 100));
}

TEST(SampleOrder, GivesExactSharesInEveryBlock) {
  const SampleOrder order(
      3,
      {{.num_samples = 1000, .weight = 0.5}, {.num_samples = 10, .weight = 0.25}, {.num_samples = 9, .weight = 0.25}});
  for (int64_t block = 0; block < 2; ++block) {
    std::map<int64_t, int64_t> counts;
    for (int64_t n = 0; n < SampleOrder::kBlockSize; ++n)
      ++counts[order.at(block * SampleOrder::kBlockSize + n).source];
    EXPECT_EQ(counts[0], SampleOrder::kBlockSize / 2);
    EXPECT_EQ(counts[1], SampleOrder::kBlockSize / 4);
    EXPECT_EQ(counts[2], SampleOrder::kBlockSize / 4);
  }
}

TEST(SampleOrder, GivesATinyWeightAPlace) {
  const SampleOrder order(3, {{.num_samples = 10, .weight = 1}, {.num_samples = 10, .weight = 1e-9}});
  int64_t num_tiny = 0;
  for (int64_t n = 0; n < SampleOrder::kBlockSize; ++n) num_tiny += order.at(n).source == 1;
  EXPECT_EQ(num_tiny, 1);
}

TEST(SampleOrder, RunsThroughWholeEpochsOfEachWeightedSource) {
  const SampleOrder order(9, {{.num_samples = 1000, .weight = 1}, {.num_samples = 301, .weight = 3}});
  std::map<std::pair<int64_t, int64_t>, std::set<int64_t>> indices;  // (source, epoch) -> samples
  std::map<std::pair<int64_t, int64_t>, int64_t> counts;
  for (int64_t n = 0; n < 3 * SampleOrder::kBlockSize; ++n) {
    const SampleRef ref = order.at(n);
    indices[{ref.source, ref.epoch}].insert(ref.index);
    ++counts[{ref.source, ref.epoch}];
  }
  EXPECT_EQ((counts[{0, 0}]), 1000);
  for (const auto& [key, count] : counts) EXPECT_EQ(static_cast<int64_t>(indices[key].size()), count);
  EXPECT_EQ(indices.size(), 50u + 490u);  // ceil(49152 / 1000) and ceil(147456 / 301)
}

TEST(SampleOrder, MixesSourcesInsideABlock) {
  const SampleOrder order(3, {{.num_samples = 1000, .weight = 1}, {.num_samples = 1000, .weight = 1}});
  int64_t num_first = 0;
  for (int64_t n = 0; n < 1000; ++n) num_first += order.at(n).source == 0;
  EXPECT_NEAR(num_first, 500, 5 * std::sqrt(250.0));
}

// These numbers are a promise to every run that was ever started: a resumed run must continue the same order.
TEST(SampleOrder, NeverChanges) {
  const SampleOrder pool(1234, {{.num_samples = 100}, {.num_samples = 28}});
  const SampleOrder blend(1234, {{.num_samples = 100, .weight = 0.7}, {.num_samples = 1'000'000'007, .weight = 0.3}});
  std::vector<int64_t> pool_values, blend_values;
  for (const int64_t n : {0, 1, 2, 127, 128, 1'000'000}) {
    for (const auto& [order, values] : {std::pair(&pool, &pool_values), std::pair(&blend, &blend_values)}) {
      const SampleRef ref = order->at(n);
      values->insert(values->end(), {ref.source, ref.epoch, ref.index});
    }
  }
  EXPECT_EQ(pool_values, (std::vector<int64_t>{1, 0, 5, 0, 0, 96, 0, 0, 70, 0, 0, 66, 0, 1, 38, 1, 7812, 12}));
  EXPECT_EQ(blend_values,
            (std::vector<int64_t>{0, 96, 20, 0, 178, 94, 1, 0, 771720183, 1, 0, 959754549, 0, 291, 67, 0, 7286, 32}));
}

TEST(SampleOrder, RefusesWeightsThatMeanNothing) {
  using Sizes = std::vector<data::SourceSize>;
  const double nan = std::nan("");
  EXPECT_THROW(SampleOrder(0, Sizes({{.num_samples = 1, .weight = -1}})), tensor::ConfigError);
  EXPECT_THROW(SampleOrder(0, Sizes({{.num_samples = 1, .weight = nan}})), tensor::ConfigError);
  EXPECT_THROW(SampleOrder(0, Sizes({{.num_samples = 1, .weight = INFINITY}})), tensor::ConfigError);
  EXPECT_THROW(SampleOrder(0, Sizes({{.num_samples = 1, .weight = 1}, {.num_samples = 1}})), tensor::ConfigError);
}

TEST(InTurnOrder, VisitsSourcesInTurnAndEverySampleOnce) {
  const InTurnOrder order({3, 1, 2});
  std::vector<std::pair<int64_t, int64_t>> seen;
  for (int64_t n = 0; n < 6; ++n) seen.emplace_back(order.at(n).source, order.at(n).index);

  EXPECT_EQ(seen, (std::vector<std::pair<int64_t, int64_t>>{{1, 0}, {2, 0}, {0, 0}, {2, 1}, {0, 1}, {0, 2}}));
  EXPECT_EQ(order.at(6), (SampleRef{.source = 1, .epoch = 1, .index = 0}));
}

TEST(InTurnOrder, ReadsOneSourceFromBeginningToEnd) {
  const InTurnOrder order({4});
  for (int64_t n = 0; n < 9; ++n) EXPECT_EQ(order.at(n), (SampleRef{.source = 0, .epoch = n / 4, .index = n % 4}));
}
