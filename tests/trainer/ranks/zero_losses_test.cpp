/// At the same dp, every ZeRO stage trains with bitwise the same numbers.

#include "tests/trainer/ranks/learner_fixture.h"

namespace tests {

namespace {

/// Loss and gradient norm of every step, then a loss of the last weights. All ranks know them.
std::vector<double> train(LearnerOnRanks& run, int64_t num_steps) {
  std::vector<double> numbers;
  for (int64_t step = 1; step <= num_steps; ++step) {
    const StepResult result = run.train(step);
    numbers.push_back(result.loss.mean());
    numbers.push_back(result.grad_norm);
  }
  numbers.push_back(run.evaluate(1));
  return numbers;
}

}  // namespace

class ZeroLosses : public LearnerRanksTest {
 protected:
  std::vector<double> train_with(const Settings& settings, int64_t num_steps = 20) {
    return train(*make(settings), num_steps);
  }
  /// Sequences of a micro-batch such that each rank has so many.
  Settings micro_batches(int64_t count, const Settings& layout) const {
    const Config whole = config(layout);
    const int64_t dp = size() / whole.parallel.tp;
    const int64_t most = std::min<int64_t>(count, whole.train.global_batch_size / dp);
    return {fmt::format("train.micro_batch_size={}", whole.train.global_batch_size / dp / most)};
  }
};

TEST_F(ZeroLosses, AreTheSameBitsForOneMicroBatch) {
  for (const Settings& layout : layouts_that_cut()) {
    const std::vector<double> expected = train_with(layout);
    EXPECT_NE(expected.back(), expected.front());
    for (const Settings& stage : stages()) EXPECT_EQ(train_with(layout + stage), expected) << describe(layout + stage);
  }
}

TEST_F(ZeroLosses, AreTheSameBitsInBf16) {
  const Settings bf16 = {"precision.compute=bf16"};
  const std::vector<double> expected = train_with(bf16, 5);
  for (const Settings& stage : stages()) EXPECT_EQ(train_with(bf16 + stage, 5), expected) << describe(stage);
}

TEST_F(ZeroLosses, AreTheSameBitsWhereAllReduceEveryMicroBatch) {
  for (const Settings& layout : layouts_that_cut()) {
    const Settings common = layout + micro_batches(4, layout) + Settings{"parallel.reduce_every=micro_batch"};
    const std::vector<double> expected = train_with(common);
    for (const Settings& stage : stages()) EXPECT_EQ(train_with(common + stage), expected) << describe(common + stage);
  }
}

TEST_F(ZeroLosses, AreTheSameBitsForStagesThatReduceEquallyOften) {
  const Settings common = micro_batches(4, {});
  const auto with = [&](int stage) {
    return train_with(common + Settings{fmt::format("parallel.zero_stage={}", stage)}, 10);
  };

  EXPECT_EQ(with(0), with(1));
  EXPECT_EQ(with(2), with(3));
}

TEST_F(ZeroLosses, AreTheSameBitsForEveryBucketSize) {
  const std::string few = "parallel.bucket_mb=0.00002";  // five elements
  for (const Settings& stage : stages()) {
    const Settings common = micro_batches(2, {}) + stage;
    const std::vector<double> expected = train_with(common);
    for (const char* size : {"parallel.bucket_mb=0.0007", "parallel.bucket_mb=0.003", "parallel.bucket_mb=25"}) {
      EXPECT_EQ(train_with(common + Settings{size}), expected) << describe(common) << size;
    }
    EXPECT_EQ(train_with(common + Settings{few}, 1), train_with(common, 1)) << describe(common);
  }
}

TEST_F(ZeroLosses, AreTheSameBitsRunAfterRun) {
  const Settings settings = {"parallel.zero_stage=3"};
  EXPECT_EQ(train_with(settings, 5), train_with(settings, 5));
}

}  // namespace tests
