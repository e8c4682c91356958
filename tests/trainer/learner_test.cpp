#include "trainer/learner.h"

#include <gmock/gmock.h>

#include "tests/support/tensors.h"
#include "tests/trainer/tiny_run.h"

namespace trainer {
namespace {

/// Losses, norms and the final weights of a few steps.
struct Training {
  std::vector<double> losses, grad_norms;
  tests::Values weights;
};

tests::Values weights_of(Learner& learner) {
  tests::Values all;
  for (const StateFragment& fragment : learner.state()) {
    if (fragment.kind != "weights") continue;
    const tests::Values values = tests::values_of(fragment.values);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

class LearnerTest : public testing::Test {
 protected:
  Config config(std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), {"precision.compute=fp64", "train.global_batch_size=12"});
    return data_.config(data_.folder() / "run", std::move(overrides));
  }
  data::Batch batch(const Config& config, int64_t step) const {
    const auto dataset = data::Dataset::open_train(config.data, dataset_options(config));
    const int64_t size = config.train.global_batch_size;
    return data::read_batch(dataset, (step - 1) * size, size);
  }
  Training train(const Config& config, int64_t steps) {
    LearnerAlone learner(config, backend_);
    Training training;
    for (int64_t step = 1; step <= steps; ++step) {
      const StepResult result = learner.train({.step = step, .lr = 1e-2}, batch(config, step));
      training.losses.push_back(result.loss.mean());
      training.grad_norms.push_back(result.grad_norm);
    }
    training.weights = weights_of(learner);
    return training;
  }

  TinyData data_;
  tensor::Backend backend_ = tiny_backend();
};

/// Largest difference relative to the largest value.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, magnitude = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference = std::max(difference, std::abs(a[i] - b[i]));
    magnitude = std::max(magnitude, std::abs(b[i]));
  }
  return difference / magnitude;
}

TEST_F(LearnerTest, TrainsTheSameForEverySplitOfTheGlobalBatch) {
  // dropout included: it is drawn by the token's place in the global batch
  const Training whole = train(config({"train.micro_batch_size=12"}), 5);

  for (const int64_t size : {1, 2, 3, 4, 6}) {
    SCOPED_TRACE(size);
    const Training split = train(config({fmt::format("train.micro_batch_size={}", size)}), 5);

    EXPECT_LT(distance(split.losses, whole.losses), 1e-12);
    EXPECT_LT(distance(split.grad_norms, whole.grad_norms), 1e-12);
    EXPECT_LT(distance(split.weights, whole.weights), 1e-12);
  }
}

TEST_F(LearnerTest, TakesTheWholeBatchWhereNoMicroBatchIsSet) {
  const Training whole = train(config({"train.micro_batch_size=12"}), 2);
  const Training automatic = train(config({"train.micro_batch_size=0"}), 2);

  EXPECT_EQ(automatic.losses, whole.losses);
  EXPECT_EQ(automatic.weights, whole.weights);
}

TEST_F(LearnerTest, TrainsTheSameForEveryRecompute) {
  const Training kept = train(config({"train.recompute=none"}), 3);

  for (const std::string recompute : {"selective", "full"}) {
    const Training again = train(config({"train.recompute=" + recompute}), 3);
    EXPECT_EQ(again.losses, kept.losses) << recompute;
    EXPECT_EQ(again.weights, kept.weights) << recompute;
  }
}

TEST_F(LearnerTest, AveragesOverTheTokensThatHaveATarget) {
  const Config half = config({"model.dropout=0", "train.micro_batch_size=1"});
  data::Batch masked = batch(half, 1);
  // the first of 12 sequences keeps one target: its token weighs as much as any other
  for (int64_t i = 1; i < masked.seq_len; ++i) {
    if (masked.targets[i] >= 0) --masked.num_valid_targets;
    masked.targets[i] = data::kIgnoredTarget;
  }
  LearnerAlone split(half, backend_);
  const Config together = config({"model.dropout=0", "train.micro_batch_size=12"});
  LearnerAlone whole(together, backend_);

  const StepResult a = split.train({.step = 1, .lr = 1e-2}, masked);
  const StepResult b = whole.train({.step = 1, .lr = 1e-2}, masked);

  EXPECT_NEAR(a.loss.mean(), b.loss.mean(), 1e-12);
  EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-12 * b.grad_norm);
}

TEST_F(LearnerTest, TrainsOnABatchWithoutAnyTarget) {
  const Config plain = config();
  data::Batch empty = batch(plain, 1);
  std::fill(empty.targets.begin(), empty.targets.end(), data::kIgnoredTarget);
  empty.num_valid_targets = 0;
  LearnerAlone learner(plain, backend_);

  const StepResult result = learner.train({.step = 1, .lr = 1e-2}, empty);

  EXPECT_EQ(result.loss.mean(), 0);
  EXPECT_EQ(result.grad_norm, 0);
}

TEST_F(LearnerTest, StartsAtTheLossOfAUniformGuess) {
  const Training first = train(config({"model.init_std=1e-4"}), 1);

  EXPECT_NEAR(first.losses[0], std::log(64), 1e-3);
}

TEST_F(LearnerTest, ReportsTheGradientNormBeforeClipping) {
  const Training free = train(config({"train.max_grad_norm=0"}), 1);
  const Training clipped = train(config({"train.max_grad_norm=0.01"}), 1);

  EXPECT_GT(free.grad_norms[0], 0.01);
  EXPECT_EQ(clipped.grad_norms[0], free.grad_norms[0]);
}

TEST_F(LearnerTest, ClippingHidesTheScaleOfTheGradient) {
  // eps as large as the gradients makes AdamW feel their scale; both norms are above the limit
  const std::vector<std::string> common = {"optimizer.eps=1", "optimizer.weight_decay=0"};
  auto with = [&](const std::string& limit) {
    auto overrides = common;
    overrides.push_back("train.max_grad_norm=" + limit);
    return train(config(overrides), 1).weights;
  };
  const tests::Values before = [&] {
    const Config plain = config(common);
    LearnerAlone learner(plain, backend_);
    return weights_of(learner);
  }();

  const tests::Values one = with("0.001"), two = with("0.002");

  // With eps far above the gradient the first step is lr * gradient / eps: twice the limit, twice the way.
  double way_one = 0, way_two = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    way_one += std::abs(one[i] - before[i]);
    way_two += std::abs(two[i] - before[i]);
  }
  EXPECT_NEAR(way_two / way_one, 2, 0.01);
}

struct Injection {
  std::string name, dtype;
  double value;
};
void PrintTo(const Injection& injection, std::ostream* out) { *out << injection.name; }

class NotFinite : public LearnerTest, public testing::WithParamInterface<Injection> {};

TEST_P(NotFinite, StepIsRefusedAndChangesNothing) {
  const Config plain = config({"precision.compute=" + GetParam().dtype});
  LearnerAlone learner(plain, backend_);
  for (StateFragment& fragment : learner.state()) {
    if (name_of(fragment) != "weights/layers.1.mlp_norm.weight") continue;
    tests::fill(fragment.values, tests::Values(static_cast<size_t>(fragment.values.numel()), GetParam().value));
  }
  learner.loaded();
  const auto bytes = [&] {
    std::string all;
    for (const StateFragment& fragment : learner.state()) {
      all.append(static_cast<const char*>(fragment.values.raw()), static_cast<size_t>(fragment.values.bytes()));
    }
    return all;
  };
  const std::string before = bytes();

  const std::string message =
      tests::message_of<tensor::NumericsError>([&] { learner.train({.step = 7, .lr = 1e-2}, batch(plain, 7)); });

  EXPECT_THAT(message, testing::HasSubstr("step 7: loss = "));
  EXPECT_THAT(message, testing::HasSubstr("Fix: "));
  EXPECT_TRUE(bytes() == before);
}

INSTANTIATE_TEST_SUITE_P(
    Weights, NotFinite,
    testing::Values(Injection{"Fp32Nan", "fp32", std::nan("")}, Injection{"Fp32Infinite", "fp32", HUGE_VAL},
                    Injection{"Fp32Overflows", "fp32", 1e35}, Injection{"Bf16Nan", "bf16", std::nan("")},
                    Injection{"Bf16Overflows", "bf16", 1e35}, Injection{"Fp64Nan", "fp64", std::nan("")},
                    Injection{"Fp64Overflows", "fp64", 1e300}),
    [](const auto& injection) { return injection.param.name; });

/// Logits of 0 give a finite loss. Its gradient runs into a head whose weights are almost the largest numbers.
TEST_F(LearnerTest, RefusesAGradientThatIsNotFiniteWhereTheLossIs) {
  const Config untied = config({"precision.compute=fp32", "model.tie_embeddings=false", "model.dropout=0"});
  data::Batch one_target = batch(untied, 1);
  std::fill(one_target.targets.begin(), one_target.targets.end(), data::kIgnoredTarget);
  one_target.targets[3] = 0;
  one_target.num_valid_targets = 1;
  LearnerAlone learner(untied, backend_);
  for (StateFragment& fragment : learner.state()) {
    const int64_t numel = fragment.values.numel();
    tests::Values values(static_cast<size_t>(numel), 0.0);
    if (name_of(fragment) == "weights/final_norm.weight") tests::fill(fragment.values, values);
    if (name_of(fragment) != "weights/head.weight") continue;
    for (int64_t i = 0; i < numel; ++i) values[static_cast<size_t>(i)] = i < numel / 64 ? -3e38 : 3e38;
    tests::fill(fragment.values, values);
  }
  learner.loaded();

  const std::string message =
      tests::message_of<tensor::NumericsError>([&] { learner.train({.step = 1, .lr = 1e-2}, one_target); });

  EXPECT_THAT(message, testing::HasSubstr(fmt::format("loss = {}", static_cast<float>(std::log(64))).substr(0, 11)));
  EXPECT_THAT(message, testing::AnyOf(testing::HasSubstr("norm = inf"), testing::HasSubstr("norm = nan"),
                                      testing::HasSubstr("norm = -nan")));
}

TEST_F(LearnerTest, EvaluatesWithoutDropoutAndWithoutChange) {
  const Config dropout = config({"model.dropout=0.5"});
  LearnerAlone learner(dropout, backend_);
  const Config none = config({"model.dropout=0"});
  LearnerAlone same_weights(none, backend_);
  const tests::Values before = weights_of(learner);

  const LossSum loss = learner.evaluate(batch(dropout, 1), 12);

  EXPECT_EQ(loss.loss, same_weights.evaluate(batch(none, 1), 12).loss);
  EXPECT_EQ(learner.evaluate(batch(dropout, 1), 12).loss, loss.loss);
  EXPECT_EQ(weights_of(learner), before);
}

}  // namespace
}  // namespace trainer
