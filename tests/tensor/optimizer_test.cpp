#include <omp.h>

#include "tests/support/tensors.h"

namespace tensor {
namespace {

using tests::Values;
using tests::values_of;

constexpr int64_t kCount = 40'003;  // odd, and enough for two threads

struct NaiveAdamW {
  Values master, exp_avg, exp_avg_sq;

  void step(const AdamW& a, const Values& grad) {
    for (size_t i = 0; i < master.size(); ++i) {
      const double g = grad[i] * a.grad_scale;
      exp_avg[i] = a.beta1 * exp_avg[i] + (1 - a.beta1) * g;
      exp_avg_sq[i] = a.beta2 * exp_avg_sq[i] + (1 - a.beta2) * g * g;
      const double mean = exp_avg[i] / (1 - std::pow(a.beta1, static_cast<double>(a.step)));
      const double square = exp_avg_sq[i] / (1 - std::pow(a.beta2, static_cast<double>(a.step)));
      master[i] -= a.lr * a.weight_decay * master[i];
      master[i] -= a.lr * mean / (std::sqrt(square) + a.eps);
    }
  }
};

class AdamWTest : public tests::CpuTest, public testing::WithParamInterface<Dtype> {
 protected:
  Tensor buffer(const Values& values) { return tests::make_tensor(device_, {kCount}, GetParam(), values); }
  AdamW settings_{
      .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = 1, .grad_scale = 0.5};
  Tensor master_ = buffer(tests::random_values(kCount, 1));
  Tensor exp_avg_ = buffer(Values(kCount, 0)), exp_avg_sq_ = buffer(Values(kCount, 0));
  Tensor absent_;
};

TEST_P(AdamWTest, ThreeStepsMatchNaiveLoop) {
  NaiveAdamW naive{values_of(master_), Values(kCount, 0), Values(kCount, 0)};

  for (settings_.step = 1; settings_.step <= 3; ++settings_.step) {
    const Tensor grad = buffer(tests::random_values(kCount, 10 + static_cast<uint64_t>(settings_.step)));
    ops_.adamw(settings_, grad, master_, exp_avg_, exp_avg_sq_, absent_);
    naive.step(settings_, values_of(grad));
  }

  const double epsilon = tests::epsilon(GetParam());
  const Values master = values_of(master_), exp_avg = values_of(exp_avg_), exp_avg_sq = values_of(exp_avg_sq_);
  for (size_t i = 0; i < kCount; ++i) {
    // Three steps of at most lr / (1 - beta1) each, whose relative error is a few epsilons; sums of three terms.
    EXPECT_NEAR(master[i], naive.master[i], 4 * epsilon * (std::abs(naive.master[i]) + 1));
    EXPECT_NEAR(exp_avg[i], naive.exp_avg[i], 8 * epsilon);
    EXPECT_NEAR(exp_avg_sq[i], naive.exp_avg_sq[i], 16 * epsilon * naive.exp_avg_sq[i]);
  }
}

TEST_P(AdamWTest, FirstStepMovesByTheLearningRate) {
  settings_.weight_decay = 0;
  const Values before = values_of(master_), grad = tests::random_values(kCount, 2);

  ops_.adamw(settings_, buffer(grad), master_, exp_avg_, exp_avg_sq_, absent_);

  const Values after = values_of(master_);
  for (size_t i = 0; i < kCount; i += 101) {
    EXPECT_NEAR(after[i] - before[i], grad[i] > 0 ? -0.01 : 0.01, 1e-5 + 8 * tests::epsilon(GetParam()));
  }
}

TEST_P(AdamWTest, WritesTheMasterRoundedToTheModelsDtype) {
  Tensor value = tests::undefined_tensor(device_, {kCount}, Dtype::bf16),
         expected = tests::undefined_tensor(device_, {kCount}, Dtype::bf16);
  ops_.adamw(settings_, buffer(tests::random_values(kCount, 2)), master_, exp_avg_, exp_avg_sq_, value);
  ops_.cast(master_, expected);

  EXPECT_TRUE(tests::is_same(value, expected));
}

TEST_P(AdamWTest, DecaysWithoutGradient) {
  const Values before = values_of(master_);
  ops_.adamw(settings_, buffer(Values(kCount, 0)), master_, exp_avg_, exp_avg_sq_, absent_);

  const Values after = values_of(master_);
  for (size_t i = 0; i < kCount; i += 11) {
    EXPECT_NEAR(after[i], before[i] * (1 - 0.01 * 0.1), 2 * tests::epsilon(GetParam()) * std::abs(before[i]));
  }
}

TEST_P(AdamWTest, DoesNotDependOnTheNumberOfThreads) {
  std::vector<Tensor> results;
  for (const int num_threads : {1, 2}) {
    omp_set_num_threads(num_threads);
    Tensor m = buffer(Values(kCount, 0.1)), v = buffer(Values(kCount, 0.2));
    results.push_back(buffer(tests::random_values(kCount, 1)));
    ops_.adamw(settings_, buffer(tests::random_values(kCount, 2)), results.back(), m, v, absent_);
  }

  EXPECT_TRUE(tests::is_same(results[0], results[1]));
}

TEST_P(AdamWTest, AcceptsAnEmptyShardAndRefusesOtherSizes) {
  Tensor empty = tests::undefined_tensor(device_, {0}, GetParam()), m = empty.view(), v = empty.view();
  ops_.adamw(settings_, empty, empty, m, v, absent_);

  EXPECT_THROW(ops_.adamw(settings_, empty, master_, exp_avg_, exp_avg_sq_, absent_), InternalError);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, AdamWTest, testing::Values(Dtype::fp32, Dtype::fp64));

}  // namespace
}  // namespace tensor
