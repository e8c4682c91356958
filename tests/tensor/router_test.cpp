#include <algorithm>
#include <cmath>

#include "tests/support/tensors.h"

namespace tensor {
namespace {

using tests::Values;
using tests::values_of;

constexpr int64_t kTokens = 11, kExperts = 6, kTopK = 3;

struct Case {
  const char* name;
  Router router;
};

class RouterTest : public tests::CpuTest, public testing::WithParamInterface<Case> {
 protected:
  const Router& router() const { return GetParam().router; }
  Tensor acc(Shape shape, uint64_t seed, Dtype dtype = Dtype::fp64) {
    return tests::random_tensor(device_, shape, dtype, seed);
  }
  struct Choice {
    Tensor ids, weights;
  };
  Choice route(const Router& router, const Tensor& logits, const Tensor& bias) {
    Choice choice{device_.allocate({logits.dim(0), router.top_k}, Dtype::int32, MemoryCategory::other),
                  tests::undefined_tensor(device_, {logits.dim(0), router.top_k}, logits.dtype())};
    ops_.router(router, logits, bias, choice.ids, choice.weights);
    return choice;
  }
};

Values scores_of(const Router& router, const Values& logits) {
  Values scores;
  double sum = 0;
  for (const double logit : logits) {
    scores.push_back(router.score == RouterScore::sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit));
    sum += scores.back();
  }
  for (double& score : scores) score /= router.score == RouterScore::sigmoid ? 1 : sum;
  return scores;
}

Values row_of(const Tensor& x, int64_t row) { return values_of(x.rows(row, row + 1)); }

/// Groups whose two best are together best; ids in order of group.
bool is_in_best_groups(const Router& router, const Values& ranked, int64_t id) {
  const int64_t size = kExperts / router.num_groups;
  const auto goodness = [&](int64_t group) {
    Values members(ranked.begin() + group * size, ranked.begin() + (group + 1) * size);
    std::sort(members.rbegin(), members.rend());
    return members[0] + (size > 1 ? members[1] : 0);
  };
  int64_t num_better = 0;
  for (int64_t group = 0; group < router.num_groups; ++group) num_better += goodness(group) > goodness(id / size);
  return num_better < router.top_k_groups;
}

TEST_P(RouterTest, ChoosesTheBestAndWeighsThemByScore) {
  const Tensor logits = acc({kTokens, kExperts}, 1), bias = acc({kExperts}, 2);

  const Choice choice = route(router(), logits, bias);

  for (int64_t t = 0; t < kTokens; ++t) {
    const Values scores = scores_of(router(), row_of(logits, t)), ids = row_of(choice.ids, t);
    Values ranked = scores, weights = row_of(choice.weights, t);
    for (size_t e = 0; e < kExperts; ++e) ranked[e] += values_of(bias)[e];
    double sum = 0;
    for (const double id : ids) sum += scores[static_cast<size_t>(id)];
    for (size_t k = 0; k < kTopK; ++k) {
      const auto id = static_cast<size_t>(ids[k]);
      EXPECT_NEAR(weights[k], scores[id] * router().scaling / (router().normalize ? sum : 1), 1e-14);
      EXPECT_TRUE(is_in_best_groups(router(), ranked, static_cast<int64_t>(id)));
      EXPECT_TRUE(k == 0 || ranked[static_cast<size_t>(ids[k - 1])] > ranked[id]);
    }
    for (int64_t e = 0; e < kExperts; ++e) {
      const bool is_chosen = std::find(ids.begin(), ids.end(), static_cast<double>(e)) != ids.end();
      if (is_chosen || !is_in_best_groups(router(), ranked, e)) continue;
      EXPECT_LT(ranked[static_cast<size_t>(e)], ranked[static_cast<size_t>(ids.back())]);
    }
  }
}

TEST_P(RouterTest, TakesTheFirstOfEquals) {
  const Tensor logits = tests::make_tensor(device_, {1, kExperts}, Dtype::fp32, Values(kExperts, 0.25));

  EXPECT_EQ(values_of(route(router(), logits, {}).ids), (Values{0, 1, 2}));
}

TEST_P(RouterTest, SumsChoicesAndSharesOfEachSequence) {
  const Tensor logits = acc({kTokens, kExperts}, 1);
  const Choice choice = route(router(), logits, {});
  const SequenceRows rows{.first_row = 3, .rows_per_sequence = 5, .num_sequences = 4};
  Tensor sums = tests::undefined_tensor(device_, {2, 4, kExperts}, Dtype::fp64);

  ops_.router_sums(router(), logits, choice.ids, rows, sums);

  Values expected(2 * 4 * kExperts, 0.0);
  for (int64_t t = 0; t < kTokens; ++t) {
    const auto first = static_cast<size_t>((3 + t) / 5 * kExperts);
    const Values scores = scores_of(router(), row_of(logits, t));
    double sum = 0;
    for (const double score : scores) sum += score;
    for (const double id : row_of(choice.ids, t)) expected[first + static_cast<size_t>(id)] += 1;
    for (size_t e = 0; e < kExperts; ++e) expected[4 * kExperts + first + e] += scores[e] / sum;
  }
  const Values computed = values_of(sums);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(computed[i], expected[i], 1e-13) << i;
}

TEST_P(RouterTest, BackwardMatchesFiniteDifferences) {
  Tensor logits = acc({kTokens, kExperts}, 1);
  const Tensor dweights = acc({kTokens, kTopK}, 2), counts = acc({4, kExperts}, 3);
  const SequenceRows rows{.first_row = 3, .rows_per_sequence = 5, .num_sequences = 4};
  const Choice choice = route(router(), logits, {});
  Tensor dlogits = tests::undefined_tensor(device_, {kTokens, kExperts}, Dtype::fp64);
  const auto objective = [&] {
    const Choice moved = route(router(), logits, {});
    double sum = 0.3 * ops_.router_z(logits);
    for (int64_t i = 0; i < kTokens * kTopK; ++i) {
      sum += values_of(dweights)[static_cast<size_t>(i)] * values_of(moved.weights)[static_cast<size_t>(i)];
    }
    Tensor sums = tests::undefined_tensor(device_, {2, 4, kExperts}, Dtype::fp64);
    ops_.router_sums(router(), logits, moved.ids, rows, sums);
    for (size_t i = 0; i < 4 * kExperts; ++i) sum += 0.7 * values_of(counts)[i] * values_of(sums)[4 * kExperts + i];
    return sum;
  };

  ops_.router_backward(router(), logits, choice.ids, dweights,
                       {.counts = counts, .scale_of_counts = 0.7, .scale_of_z = 0.3}, rows, dlogits);

  for (int64_t i = 0; i < logits.numel(); ++i) {
    double& element = logits.data<double>()[i];
    const double original = element;
    element = original + 1e-6;
    const double above = objective();
    element = original - 1e-6;
    const double below = objective();
    element = original;
    EXPECT_NEAR(dlogits.data<double>()[i], (above - below) / 2e-6, 1e-7) << i;
  }
}

TEST_P(RouterTest, StaysFiniteForLargeLogits) {
  const Tensor logits = tests::make_tensor(device_, {2, kExperts}, Dtype::fp32,
                                           {300, -300, 299, 0, 0, 0, -300, -300, -300, -300, -300, -300});
  const Choice choice = route(router(), logits, {});
  const Tensor dweights = acc({2, kTopK}, 2, Dtype::fp32), no_counts;
  Tensor dlogits = tests::undefined_tensor(device_, {2, kExperts}, Dtype::fp32);

  ops_.router_backward(router(), logits, choice.ids, dweights, {.counts = no_counts, .scale_of_z = 0.1}, {}, dlogits);

  for (const double x : values_of(choice.weights)) EXPECT_TRUE(std::isfinite(x));
  for (const double x : values_of(dlogits)) EXPECT_TRUE(std::isfinite(x));
}

TEST_P(RouterTest, ServesNoTokens) {
  const Tensor logits = acc({0, kExperts}, 1);

  EXPECT_EQ(route(router(), logits, {}).ids.numel(), 0);
  EXPECT_EQ(ops_.router_z(logits), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Routers, RouterTest,
    testing::Values(
        Case{"Softmax", {.top_k = kTopK}}, Case{"Normalized", {.top_k = kTopK, .normalize = true, .scaling = 2.5}},
        Case{"Sigmoid", {.score = RouterScore::sigmoid, .top_k = kTopK, .normalize = true}},
        Case{"Groups",
             {.score = RouterScore::sigmoid, .top_k = kTopK, .scaling = 1.5, .num_groups = 3, .top_k_groups = 2}},
        Case{"GroupsOfOne", {.top_k = kTopK, .num_groups = kExperts, .top_k_groups = 4}}),
    [](const auto& param) { return param.param.name; });

class Balance : public tests::CpuTest {};

TEST_F(Balance, MovesTowardsTheMean) {
  const Tensor counts = tests::make_tensor(device_, {4}, Dtype::fp32, {1, 2, 3, 2});
  Tensor master = tests::make_tensor(device_, {4}, Dtype::fp32, {1, 1, 1, -1});
  Tensor value = tests::undefined_tensor(device_, {4}, Dtype::bf16);

  ops_.balance(0.25, 2, counts, master, value);

  EXPECT_EQ(values_of(master), (Values{1.25, 1, 0.75, -1}));
  EXPECT_EQ(values_of(value), (Values{1.25, 1, 0.75, -1}));
}

class CombineTest : public tests::CpuTest, public testing::WithParamInterface<Dtype> {
 protected:
  static constexpr int64_t kRows = 5, kHidden = 70, kPlaces = 2;
  const Values places_ = {4, 0, -1, 2, 1, 3};  // three tokens; one choice was dropped
  Tensor places() { return tests::make_tensor(device_, {3, kPlaces}, Dtype::int32, places_); }
};

TEST_P(CombineTest, AddsWeightedRowsInOrder) {
  const Tensor from = tests::random_tensor(device_, {kRows, kHidden}, GetParam(), 1);
  const Tensor weights = tests::random_tensor(device_, {3, kPlaces}, accumulator_of(GetParam()), 2);
  Tensor y = tests::undefined_tensor(device_, {3, kHidden}, GetParam());

  ops_.combine(from, places(), weights, y);

  for (int64_t i = 0; i < y.numel(); ++i) {
    double sum = 0, magnitude = 0;
    for (int64_t k = 0; k < kPlaces; ++k) {
      const auto slot = static_cast<size_t>(i / kHidden * kPlaces + k);
      if (places_[slot] < 0) continue;
      const double term =
          values_of(weights)[slot] *
          values_of(from)[static_cast<size_t>(places_[slot]) * kHidden + static_cast<size_t>(i % kHidden)];
      sum += term;
      magnitude += std::abs(term);
    }
    EXPECT_NEAR(values_of(y)[static_cast<size_t>(i)], sum, tests::sum_tolerance(GetParam(), kPlaces, magnitude));
  }
}

TEST_P(CombineTest, BackwardMayOverwriteTheRows) {
  Tensor rows = tests::random_tensor(device_, {kRows, kHidden}, GetParam(), 1);
  const Tensor weights = tests::random_tensor(device_, {3, kPlaces}, accumulator_of(GetParam()), 2);
  const Tensor dy = tests::random_tensor(device_, {3, kHidden}, GetParam(), 3);
  const Values from = values_of(rows);
  Tensor dweights = tests::undefined_tensor(device_, {3, kPlaces}, accumulator_of(GetParam()));

  ops_.combine_backward(dy, rows.view(), places(), weights, rows, dweights);

  for (size_t slot = 0; slot < places_.size(); ++slot) {
    double dot = 0, magnitude = 0;
    for (size_t i = 0; i < kHidden && places_[slot] >= 0; ++i) {
      const double of_dy = values_of(dy)[slot / kPlaces * kHidden + i];
      const size_t at = static_cast<size_t>(places_[slot]) * kHidden + i;
      dot += of_dy * from[at];
      magnitude += std::abs(of_dy * from[at]);
      const double expected = values_of(weights)[slot] * of_dy;
      EXPECT_NEAR(values_of(rows)[at], expected, tests::sum_tolerance(GetParam(), 1, std::abs(expected)));
    }
    EXPECT_NEAR(values_of(dweights)[slot], dot, tests::sum_tolerance(GetParam(), kHidden, magnitude));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CombineTest, testing::Values(Dtype::fp32, Dtype::bf16, Dtype::fp64));

}  // namespace
}  // namespace tensor
