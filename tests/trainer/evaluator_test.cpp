#include "trainer/evaluator.h"

#include <gmock/gmock.h>

#include "tests/trainer/tiny_run.h"

namespace trainer {
namespace {

class EvaluatorTest : public testing::Test {
 protected:
  Config config(std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), "precision.compute=fp64");
    return data_.config(data_.folder() / "run", std::move(overrides));
  }
  Evaluator evaluator(const Config& config) const {
    return {config, data::Dataset::open_valid(config.data, dataset_options(config))};
  }
  static LossSum one_by_one(const Config& config, Learner& learner, int64_t num_samples) {
    const auto dataset = data::Dataset::open_valid(config.data, dataset_options(config));
    LossSum sum;
    for (int64_t sample = 0; sample < num_samples; ++sample) {
      const data::Batch batch = data::read_batch(*dataset, sample, 1);
      sum.loss += learner.evaluate(batch, 1).loss;
      sum.num_targets += batch.num_valid_targets;
    }
    return sum;
  }

  TinyData data_;
  tensor::Backend backend_ = tiny_backend();
};

TEST_F(EvaluatorTest, SumsOverTheFirstSamplesOfTheSet) {
  const Config some = config({"train.eval_steps=3", "train.global_batch_size=2", "train.micro_batch_size=1"});
  LearnerAlone learner(some, backend_);

  const LossSum sum = evaluator(some).run(learner), expected = one_by_one(some, learner, 6);

  EXPECT_EQ(evaluator(some).num_samples(), 6);
  EXPECT_EQ(sum.num_targets, expected.num_targets);
  EXPECT_NEAR(sum.loss, expected.loss, 1e-11 * expected.loss);
}

TEST_F(EvaluatorTest, TakesEverySampleOnceWhereThereAreFewer) {
  const Config all = config({"train.eval_steps=1000", "train.global_batch_size=7", "train.micro_batch_size=0"});
  LearnerAlone learner(all, backend_);
  const int64_t num_samples = data::Dataset::open_valid(all.data, dataset_options(all))->num_samples();
  ASSERT_NE(num_samples % 7, 0) << "the last batch is a part";

  const LossSum sum = evaluator(all).run(learner), expected = one_by_one(all, learner, num_samples);

  EXPECT_EQ(evaluator(all).num_samples(), num_samples);
  EXPECT_EQ(sum.num_targets, expected.num_targets);
  EXPECT_NEAR(sum.loss, expected.loss, 1e-11 * expected.loss);
}

TEST_F(EvaluatorTest, DoesNotDependOnBatchesOrMicroBatches) {
  const Config one = config({"train.global_batch_size=12", "train.micro_batch_size=12", "train.eval_steps=1"});
  const Config many = config({"train.global_batch_size=3", "train.micro_batch_size=1", "train.eval_steps=4"});
  LearnerAlone a(one, backend_), b(many, backend_);

  const LossSum sum = evaluator(one).run(a), same = evaluator(many).run(b);

  EXPECT_EQ(sum.num_targets, same.num_targets);
  EXPECT_NEAR(sum.loss, same.loss, 1e-12 * sum.loss);
}

TEST_F(EvaluatorTest, GivesBitsPerByteWhereATokenIsAByte) {
  const Config bytes = config({"data.tokenizer=bytes"});

  const auto metrics = evaluator(bytes).metrics({.loss = 10 * std::log(2.0), .num_targets = 5});

  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[1].first, "valid_bits_per_byte");
  EXPECT_NEAR(metrics[1].second, 2, 1e-15);
  EXPECT_EQ(evaluator(config()).metrics({.loss = 1, .num_targets = 1}).size(), 1u);
}

TEST_F(EvaluatorTest, RefusesAFileThatIsShorterThanOneSample) {
  const Config too_long = config({"model.seq_len=2000"});

  EXPECT_THROW(evaluator(too_long), tensor::DataError);
}

}  // namespace
}  // namespace trainer
