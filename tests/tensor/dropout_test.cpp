#include <omp.h>

#include "tensor/cpu/dropout_mask.h"
#include "tests/support/tensors.h"

namespace tensor {
namespace {

using tests::Values;
using tests::values_of;

constexpr Dropout kDropout{.probability = 0.3, .seed = 0x123456789abcdef0u, .step = 17, .site = 5};

class DropoutTest : public tests::CpuTest, public testing::WithParamInterface<Dtype> {
 protected:
  Tensor ones(int64_t tokens, int64_t features) {
    return tests::make_tensor(device_, {tokens, features}, GetParam(),
                              Values(static_cast<size_t>(tokens * features), 1));
  }
  /// Token indices first, first + 1, ...
  Tensor token_index(int64_t first, int64_t tokens) {
    Values values;
    for (int64_t t = 0; t < tokens; ++t) values.push_back(static_cast<double>(first + t));
    return tests::make_tensor(device_, {tokens}, Dtype::int64, values);
  }
  /// Dropout of ones.
  Tensor mask(const Dropout& dropout, int64_t first_token, int64_t tokens, int64_t features) {
    Tensor y = tests::undefined_tensor(device_, {tokens, features}, GetParam());
    ops_.dropout_add(dropout, ones(tokens, features), Tensor(), token_index(first_token, tokens), y);
    return y;
  }
};

TEST_P(DropoutTest, DrawsWhatItsCounterLayoutSays) {
  const int64_t token = (int64_t{3} << 32) + 9;
  const Values values = values_of(mask(kDropout, token, 1, 131));

  const Philox::Key key = Philox::key(kDropout.seed ^ hash_name("dropout"));
  for (uint32_t feature = 0; feature < 131; ++feature) {
    const Philox::Counter draw = Philox::draw({feature / 4, 9, 17, 5u << 16 | 3u}, key);
    const bool is_kept = to_uniform(draw[feature % 4]) >= kDropout.probability;
    EXPECT_EQ(values[feature] != 0, is_kept) << "feature " << feature;
  }
}

TEST_P(DropoutTest, KeepsItsShareAndTheMean) {
  const Values values = values_of(mask(kDropout, 0, 200, 100));

  const double kept =
      static_cast<double>(values.size()) - static_cast<double>(std::count(values.begin(), values.end(), 0.0));
  EXPECT_NEAR(kept / 20'000, 0.7, 5 * std::sqrt(0.3 * 0.7 / 20'000));  // five standard errors
  for (const double y : values) EXPECT_TRUE(y == 0 || std::abs(y - 1 / 0.7) <= tests::epsilon(GetParam()) * 2) << y;
}

TEST_P(DropoutTest, DependsOnSeedStepSiteAndTokenOnly) {
  const Values base = values_of(mask(kDropout, 0, 4, 100));
  Dropout other_seed = kDropout, other_step = kDropout, other_site = kDropout;
  ++other_seed.seed, ++other_step.step, ++other_site.site;

  EXPECT_EQ(values_of(mask(kDropout, 0, 4, 100)), base);
  for (const Dropout& other : {other_seed, other_step, other_site}) EXPECT_NE(values_of(mask(other, 0, 4, 100)), base);
  EXPECT_NE(values_of(mask(kDropout, 4, 4, 100)), base);
}

TEST_P(DropoutTest, TokensDrawTheSameMaskWhereverTheyLie) {
  const Tensor whole = mask(kDropout, 100, 6, 77), part = mask(kDropout, 103, 2, 77);

  EXPECT_TRUE(tests::is_same(whole.rows(3, 5), part));
}

TEST_P(DropoutTest, AddsTheResidualInPlaceAndInStridedRows) {
  const Tensor x = tests::random_tensor(device_, {7, 70}, GetParam(), 1), index = token_index(0, 7);
  Tensor wide = tests::random_tensor(device_, {7, 80}, GetParam(), 2);
  Tensor y = wide.columns(4, 74);
  const Values residual = values_of(y), x_values = values_of(x), kept = values_of(mask(kDropout, 0, 7, 70));

  ops_.dropout_add(kDropout, x, y, index, y);

  const Values sums = values_of(y);
  for (size_t i = 0; i < sums.size(); ++i) {
    const double dropped = kept[i] == 0 ? 0 : x_values[i] / 0.7;
    EXPECT_NEAR(sums[i], dropped + residual[i],
                2 * tests::epsilon(GetParam()) * (std::abs(dropped) + std::abs(residual[i])));
  }
}

TEST_P(DropoutTest, BackwardIsTheSameWithoutResidual) {
  const Tensor x = tests::random_tensor(device_, {5, 66}, GetParam(), 1),
               zero = tests::make_tensor(device_, {5, 66}, GetParam(), Values(330, 0));
  Tensor forward = tests::undefined_tensor(device_, {5, 66}, GetParam()),
         backward = tests::undefined_tensor(device_, {5, 66}, GetParam());

  ops_.dropout_add(kDropout, x, zero, token_index(0, 5), forward);
  ops_.dropout_add(kDropout, x, Tensor(), token_index(0, 5), backward);

  EXPECT_EQ(values_of(forward), values_of(backward));
}

TEST_P(DropoutTest, ProbabilityZeroOnlyAdds) {
  const Tensor x = tests::random_tensor(device_, {5, 66}, GetParam(), 1),
               residual = tests::random_tensor(device_, {5, 66}, GetParam(), 2);
  Tensor copy = tests::undefined_tensor(device_, {5, 66}, GetParam()),
         sum = tests::undefined_tensor(device_, {5, 66}, GetParam());
  Tensor expected = tests::undefined_tensor(device_, {5, 66}, GetParam());

  ops_.dropout_add({}, x, Tensor(), token_index(0, 5), copy);
  ops_.dropout_add({}, x, residual, token_index(0, 5), sum);
  ops_.add(x, residual, expected);

  EXPECT_TRUE(tests::is_same(copy, x));
  EXPECT_TRUE(tests::is_same(sum, expected));
}

TEST_P(DropoutTest, DoesNotDependOnTheNumberOfThreads) {
  std::vector<Tensor> masks;
  for (const int num_threads : {1, 2}) {
    omp_set_num_threads(num_threads);
    masks.push_back(mask(kDropout, 0, 300, 99));
  }

  EXPECT_TRUE(tests::is_same(masks[0], masks[1]));
}

TEST_P(DropoutTest, AcceptsNoTokensAndRefusesProbabilityOne) {
  Dropout all = kDropout;
  all.probability = 1;

  EXPECT_EQ(mask(kDropout, 0, 0, 10).numel(), 0);
  EXPECT_THROW(mask(all, 0, 1, 10), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, DropoutTest, testing::Values(Dtype::fp32, Dtype::bf16, Dtype::fp64));

}  // namespace
}  // namespace tensor
