#include <omp.h>

#include "tests/support/tensors.h"

namespace tensor {
namespace {

using tests::Values;
using tests::values_of;

constexpr int64_t kRows = 5, kVocab = 150;
const Values kTargets{0, 149, -1, 77, 64};  // row 2 is ignored
constexpr double kScale = 0.25;

/// What the steps leave behind for one block of columns.
struct Result {
  Values max, sum_exp, target_logit, gradient;
  double loss = 0;
};

class CrossEntropyTest : public tests::CpuTest, public testing::WithParamInterface<Dtype> {
 protected:
  Tensor per_row() { return tests::undefined_tensor(device_, {kRows}, GetParam()); }
  Tensor targets() { return tests::make_tensor(device_, {kRows}, Dtype::int32, kTargets); }

  /// All steps over all columns. Writes the gradient over the logits.
  Result run(const Values& logit_values) {
    Tensor logits = tests::make_tensor(device_, {kRows, kVocab}, GetParam(), logit_values);
    Tensor max = per_row(), sum_exp = per_row(), target_logit = per_row();
    ops_.cross_entropy_max(logits, max);
    ops_.cross_entropy_exp(logits, max, targets(), 0, sum_exp, target_logit);
    const double loss = ops_.cross_entropy_loss(sum_exp, target_logit, targets());
    ops_.cross_entropy_gradient(logits, sum_exp, targets(), 0, kScale, logits);
    return {values_of(max), values_of(sum_exp), values_of(target_logit), values_of(logits), loss};
  }
  double epsilon() const { return tests::epsilon(GetParam()); }
};

double naive_loss(const Values& logits) {
  double loss = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    if (kTargets[static_cast<size_t>(row)] < 0) continue;
    const double* x = logits.data() + row * kVocab;
    double sum = 0;
    for (int64_t j = 0; j < kVocab; ++j) sum += std::exp(x[j]);
    loss += std::log(sum) - x[static_cast<int64_t>(kTargets[static_cast<size_t>(row)])];
  }
  return loss;
}

TEST_P(CrossEntropyTest, LossMatchesNaiveLoop) {
  const Values logits = tests::random_values(kRows * kVocab, 1);

  EXPECT_NEAR(run(logits).loss, naive_loss(logits), kRows * 40 * epsilon());
}

TEST_P(CrossEntropyTest, GradientMatchesNaiveLoop) {
  const Values logits = tests::random_values(kRows * kVocab, 1);
  const Values gradient = run(logits).gradient;

  for (int64_t row = 0; row < kRows; ++row) {
    double sum = 0;
    for (int64_t j = 0; j < kVocab; ++j) sum += std::exp(logits[static_cast<size_t>(row * kVocab + j)]);
    for (int64_t j = 0; j < kVocab; ++j) {
      const size_t i = static_cast<size_t>(row * kVocab + j);
      const double target = kTargets[static_cast<size_t>(row)];
      const double one_hot = target == static_cast<double>(j) ? 1 : 0;
      const double expected = target < 0 ? 0 : kScale * (std::exp(logits[i]) / sum - one_hot);
      EXPECT_NEAR(gradient[i], expected, kScale * 20 * epsilon());
    }
  }
}

TEST_P(CrossEntropyTest, IgnoredRowsGetExactlyZeroGradient) {
  const Values gradient = run(tests::random_values(kRows * kVocab, 1)).gradient;

  EXPECT_EQ(Values(gradient.begin() + 2 * kVocab, gradient.begin() + 3 * kVocab), Values(kVocab, 0));
}

TEST_P(CrossEntropyTest, SurvivesLargeLogits) {
  Values logits = tests::random_values(kRows * kVocab, 1), shifted = logits;
  for (double& x : shifted) x += 4096;
  for (const size_t i : {0u, 100u}) shifted[i] = -1e30;
  for (const size_t i : {0u, 100u}) logits[i] = -1e30;

  EXPECT_NEAR(run(shifted).loss / run(logits).loss, 1, 4096 * epsilon());
}

TEST_P(CrossEntropyTest, NanReachesTheLoss) {
  Values logits = tests::random_values(kRows * kVocab, 1);
  logits[130] = std::nan("");

  EXPECT_TRUE(std::isnan(run(logits).loss));
}

// Two ranks hold 90 and 60 columns. What their all-reduces do is done by hand: max of row_max, sums of the others.
TEST_P(CrossEntropyTest, ColumnsSplitOverTwoRanksEqualTheWhole) {
  const Values values = tests::random_values(kRows * kVocab, 1);
  const Result whole = run(values);
  Tensor logits = tests::make_tensor(device_, {kRows, kVocab}, GetParam(), values);
  const int64_t first[] = {0, 90, kVocab};
  Tensor max[] = {per_row(), per_row()}, sum[] = {per_row(), per_row()}, target_logit[] = {per_row(), per_row()};
  Tensor part[] = {logits.columns(0, 90), logits.columns(90, kVocab)};

  for (int rank : {0, 1}) ops_.cross_entropy_max(part[rank], max[rank]);
  Values highest = values_of(max[0]);
  for (size_t row = 0; row < kRows; ++row) highest[row] = std::max(highest[row], values_of(max[1])[row]);
  tests::fill(max[0], highest);
  for (int rank : {0, 1})
    ops_.cross_entropy_exp(part[rank], max[0], targets(), first[rank], sum[rank], target_logit[rank]);
  ops_.add(sum[0], sum[1], sum[0]);
  ops_.add(target_logit[0], target_logit[1], target_logit[0]);
  for (int rank : {0, 1}) ops_.cross_entropy_gradient(part[rank], sum[0], targets(), first[rank], kScale, part[rank]);

  EXPECT_EQ(highest, whole.max);
  EXPECT_EQ(values_of(target_logit[0]), whole.target_logit);
  EXPECT_NEAR(ops_.cross_entropy_loss(sum[0], target_logit[0], targets()), whole.loss, kRows * 10 * epsilon());
  const Values gradient = values_of(logits);
  for (size_t i = 0; i < gradient.size(); ++i) EXPECT_NEAR(gradient[i], whole.gradient[i], kScale * 20 * epsilon());
}

TEST_P(CrossEntropyTest, WritesGradientsOfTheModelsDtype) {
  const Values values = tests::random_values(kRows * kVocab, 1);
  const Result whole = run(values);
  Tensor logits = tests::make_tensor(device_, {kRows, kVocab}, GetParam(), values);
  Tensor max = per_row(), sum_exp = per_row(), target_logit = per_row();
  Tensor gradient = tests::undefined_tensor(device_, {kRows, kVocab}, Dtype::bf16);
  ops_.cross_entropy_max(logits, max);
  ops_.cross_entropy_exp(logits, max, targets(), 0, sum_exp, target_logit);

  ops_.cross_entropy_gradient(logits, sum_exp, targets(), 0, kScale, gradient);

  const Values rounded = values_of(gradient);
  for (size_t i = 0; i < rounded.size(); ++i) {
    EXPECT_NEAR(rounded[i], whole.gradient[i], tests::epsilon(Dtype::bf16) * std::abs(whole.gradient[i]));
  }
}

TEST_P(CrossEntropyTest, DoesNotDependOnTheNumberOfThreads) {
  const Tensor values = tests::random_tensor(device_, {37, 1111}, GetParam(), 1);
  const Tensor no_targets = tests::make_tensor(device_, {37}, Dtype::int32, Values(37, 5));
  std::vector<Tensor> gradients;
  for (const int num_threads : {1, 2}) {
    omp_set_num_threads(num_threads);
    Tensor logits = device_.allocate({37, 1111}, GetParam(), MemoryCategory::other);
    device_.copy(values, logits);
    Tensor max = tests::undefined_tensor(device_, {37}, GetParam()), sum = max.view(), target_logit = max.view();
    sum = tests::undefined_tensor(device_, {37}, GetParam());
    target_logit = tests::undefined_tensor(device_, {37}, GetParam());
    ops_.cross_entropy_max(logits, max);
    ops_.cross_entropy_exp(logits, max, no_targets, 0, sum, target_logit);
    ops_.cross_entropy_gradient(logits, sum, no_targets, 0, kScale, logits);
    gradients.push_back(std::move(logits));
  }

  EXPECT_TRUE(tests::is_same(gradients[0], gradients[1]));
}

TEST_P(CrossEntropyTest, AcceptsNoRows) {
  Tensor logits = tests::undefined_tensor(device_, {0, kVocab}, GetParam());
  Tensor none = tests::undefined_tensor(device_, {0}, GetParam());
  const Tensor no_targets = tests::undefined_tensor(device_, {0}, Dtype::int32);
  Tensor sum = none.view(), target_logit = none.view();

  ops_.cross_entropy_max(logits, none);
  ops_.cross_entropy_exp(logits, none, no_targets, 0, sum, target_logit);
  ops_.cross_entropy_gradient(logits, sum, no_targets, 0, kScale, logits);

  EXPECT_EQ(ops_.cross_entropy_loss(sum, target_logit, no_targets), 0);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, CrossEntropyTest, testing::Values(Dtype::fp32, Dtype::fp64));

using CrossEntropyInFp64 = tests::CpuTest;

TEST_F(CrossEntropyInFp64, GradientMatchesFiniteDifferences) {
  const Values values = tests::random_values(kRows * kVocab, 1);
  Tensor logits = tests::make_tensor(device_, {kRows, kVocab}, Dtype::fp64, values);
  const Tensor targets = tests::make_tensor(device_, {kRows}, Dtype::int32, kTargets);
  Tensor max = tests::undefined_tensor(device_, {kRows}, Dtype::fp64);
  Tensor sum = tests::undefined_tensor(device_, {kRows}, Dtype::fp64);
  Tensor target_logit = tests::undefined_tensor(device_, {kRows}, Dtype::fp64);
  ops_.cross_entropy_max(logits, max);
  ops_.cross_entropy_exp(logits, max, targets, 0, sum, target_logit);
  ops_.cross_entropy_gradient(logits, sum, targets, 0, 1.0, logits);
  const Values gradient = values_of(logits);

  constexpr double kStep = 1e-5;  // error: step^2 of truncation plus epsilon * loss / step of rounding
  for (size_t i = 0; i < gradient.size(); i += 7) {
    Values moved = values;
    moved[i] += kStep;
    const double above = naive_loss(moved);
    moved[i] -= 2 * kStep;
    EXPECT_NEAR(gradient[i], (above - naive_loss(moved)) / (2 * kStep), kStep * kStep + 1e-15 * 40 / kStep);
  }
}

}  // namespace
}  // namespace tensor
