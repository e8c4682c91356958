/// A run, unbroken and broken. In this process; tests/trainer/process_resume_test.cpp kills the real program.

#include "trainer/training_run.h"

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/trainer/tiny_run.h"

namespace trainer {
namespace {

using tensor::ExitCode;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr int64_t kSteps = 12;

/// What makes one kind of run differ from another.
struct Kind {
  std::string name;
  std::vector<std::string> overrides;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class TrainingRunOf : public testing::TestWithParam<Kind> {
 protected:
  Config config(std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), GetParam().overrides.begin(), GetParam().overrides.end());
    return data_.config(dir_, std::move(overrides));
  }
  /// Trains without a break, then makes room for a run in the same folder (its name is part of a checkpoint).
  void train_unbroken() {
    ASSERT_EQ(train_here(config()), ExitCode::finished);
    trajectory_ = trajectory(dir_);
    ASSERT_EQ(std::ssize(trajectory_), kSteps);
    last_checkpoint_ = files_in(checkpoint_at(dir_, kSteps));
    std::filesystem::remove_all(dir_);
  }
  void expect_the_same_end() const {
    EXPECT_THAT(trajectory(dir_), ElementsAreArray(trajectory_));
    EXPECT_TRUE(files_in(checkpoint_at(dir_, kSteps)) == last_checkpoint_);
  }

  TinyData data_;
  std::string dir_ = data_.folder() / "run";
  std::vector<std::string> trajectory_;
  std::map<std::string, std::string> last_checkpoint_;
};

/// A signal that came before the first step ends a run after that step: each start does one.
TEST_P(TrainingRunOf, StoppedAfterEveryStepEndsAsIfUnbroken) {
  train_unbroken();

  for (int64_t step = 1; step < kSteps; ++step) {
    tensor::Backend backend = tiny_backend();
    const Config stopped = config();
    const OneRank alone(stopped);
    TrainingRun run({.config = stopped, .backend = backend, .context = alone.context, .console = nullptr});
    ::raise(SIGTERM);
    ASSERT_EQ(run.run(), ExitCode::run_again);
    ASSERT_EQ(std::ssize(trajectory(dir_)), step);
  }
  EXPECT_EQ(train_here(config()), ExitCode::finished);

  expect_the_same_end();
}

/// A killed run leaves an older checkpoint, metrics of later steps, half a line, and half a checkpoint.
TEST_P(TrainingRunOf, KilledAfterAnyStepEndsAsIfUnbroken) {
  train_unbroken();
  ASSERT_EQ(train_here(config({"checkpoint.keep_last=0"})), ExitCode::finished);
  const auto files = files_in(dir_);

  for (int64_t killed_after = 0; killed_after < kSteps; ++killed_after) {
    SCOPED_TRACE(killed_after);
    for (const auto& [name, bytes] : files) {
      std::filesystem::create_directories(std::filesystem::path(dir_ + name).parent_path());
      tests::write_file(dir_ + name, bytes);
    }
    for (int64_t step = killed_after + 1; step <= kSteps; ++step)
      std::filesystem::remove_all(checkpoint_at(dir_, step));
    const std::string half = checkpoint_at(dir_, killed_after + 1) + ".tmp-abc123/shards/000";
    std::filesystem::create_directories(half);
    tests::write_file(half + "/rank_00000.h5.tmp-1", "half a checkpoint");
    std::ofstream(dir_ + "/metrics.jsonl", std::ios::app) << "{\"step\":";

    ASSERT_EQ(train_here(config()), ExitCode::finished);

    expect_the_same_end();
  }
}

INSTANTIATE_TEST_SUITE_P(AllKinds, TrainingRunOf,
                         testing::Values(Kind{"Fp32", {}}, Kind{"Bf16", {"precision.compute=bf16"}},
                                         Kind{"Fp64", {"precision.compute=fp64"}},
                                         Kind{"Gpt2Shape",
                                              {"model.position=learned", "model.norm=layer_norm",
                                               "model.activation=gelu_tanh", "model.bias=true", "train.recompute=full",
                                               "model.num_kv_heads=4"}}),
                         [](const auto& kind) { return kind.param.name; });

class TrainingRunTest : public testing::Test {
 protected:
  Config config(std::vector<std::string> overrides = {}) const { return data_.config(dir_, std::move(overrides)); }
  void damage(int64_t step) {
    const std::string shard = checkpoint_at(dir_, step) + "/shards/000/rank_00000.h5";
    std::string bytes = tests::read_file(shard);
    bytes[bytes.size() / 2] ^= 1;
    tests::write_file(shard, bytes);
  }
  std::string log() const { return tests::read_file(dir_ + "/log.txt"); }

  TinyData data_;
  std::string dir_ = data_.folder() / "run";
};

TEST_F(TrainingRunTest, LearnsWhatTheDataTeaches) {
  train_here(config({"train.steps=150", "model.dropout=0", "train.global_batch_size=8", "train.eval_steps=100"}));

  const auto last = nlohmann::json::parse(trajectory(dir_).back());
  EXPECT_LT(last["valid_loss"], 1.8);  // random: ln 64 = 4.16; known: ln 4 = 1.39
}

TEST_F(TrainingRunTest, EvaluatesEveryFewStepsAndAtTheEnd) {
  train_here(config());

  std::vector<int64_t> evaluated;
  for (const std::string& line : trajectory(dir_)) {
    const auto object = nlohmann::json::parse(line);
    if (object.contains("valid_loss")) evaluated.push_back(object["step"]);
  }
  EXPECT_THAT(evaluated, testing::ElementsAre(5, 10, 12));
}

TEST_F(TrainingRunTest, KeepsTheNewestCheckpoints) {
  train_here(config({"checkpoint.every_steps=2", "checkpoint.keep_last=2"}));

  std::vector<int64_t> steps;
  for (const auto& candidate : checkpoint::list_checkpoints(dir_ + "/checkpoints")) steps.push_back(candidate.step);
  EXPECT_THAT(steps, testing::ElementsAre(10, 12));
}

TEST_F(TrainingRunTest, AtItsLastStepWritesNothing) {
  train_here(config());
  const auto before = files_in(dir_);

  EXPECT_EQ(train_here(config()), ExitCode::finished);

  EXPECT_TRUE(files_in(dir_) == before);
}

TEST_F(TrainingRunTest, GoesOnWhereMoreStepsAreAskedFor) {
  const std::vector<std::string> constant = {"lr_schedule.kind=constant", "lr_schedule.min_lr=0", "train.eval_every=0"};
  const auto with_steps = [&](int64_t steps) {
    auto overrides = constant;
    overrides.push_back(fmt::format("train.steps={}", steps));
    return config(overrides);
  };
  train_here(with_steps(12));
  const auto unbroken = trajectory(dir_);
  std::filesystem::remove_all(dir_);

  train_here(with_steps(7));
  train_here(with_steps(12));

  EXPECT_THAT(trajectory(dir_), ElementsAreArray(unbroken));
  EXPECT_THAT(log(), HasSubstr("changed since then: train.steps = 12 (was 7)"));
}

TEST_F(TrainingRunTest, FallsBackLoudlyFromADamagedCheckpointAndEndsTheSame) {
  train_here(config());
  const auto unbroken = trajectory(dir_);
  const auto last = files_in(checkpoint_at(dir_, 12));
  damage(12);

  EXPECT_EQ(train_here(config()), ExitCode::finished);

  EXPECT_THAT(log(), HasSubstr("warning: " + checkpoint_at(dir_, 12) + "/shards/000/rank_00000.h5"));
  EXPECT_THAT(log(), HasSubstr("resumed from " + checkpoint_at(dir_, 8)));
  EXPECT_THAT(trajectory(dir_), ElementsAreArray(unbroken));
  EXPECT_TRUE(files_in(checkpoint_at(dir_, 12)) == last);
}

TEST_F(TrainingRunTest, RefusesToStartAnewOverDamagedCheckpoints) {
  train_here(config());
  for (const int64_t step : {4, 8, 12}) damage(step);

  EXPECT_THROW(train_here(config()), tensor::CheckpointError);
}

TEST_F(TrainingRunTest, RefusesAnotherSeedInTheMiddle) {
  train_here(config({"train.steps=4"}));

  const std::string message = tests::message_of<tensor::ConfigError>([&] { train_here(config({"run.seed=4"})); });

  EXPECT_THAT(message, HasSubstr("run.seed = 4"));
  EXPECT_THAT(message, HasSubstr("set run.seed = 3"));
}

TEST_F(TrainingRunTest, RefusesToMixANewRunIntoAnOldOne) {
  train_here(config({"train.steps=4"}));

  const std::string message =
      tests::message_of<tensor::ConfigError>([&] { train_here(config({"checkpoint.resume=none"})); });

  EXPECT_THAT(message, HasSubstr("up to step 4"));
}

TEST_F(TrainingRunTest, NamesTheTensorsOfAnotherModel) {
  train_here(config({"train.steps=4"}));

  const std::string message =
      tests::message_of<tensor::CheckpointError>([&] { train_here(config({"model.hidden_size=48"})); });

  EXPECT_THAT(message, HasSubstr("\"weights/embedding.token.weight\" is [64, 32] fp32 there and [64, 48] fp32"));
}

TEST_F(TrainingRunTest, GoesOnInAnotherPrecisionAndSaysSo) {
  train_here(config({"train.steps=4", "precision.compute=fp32"}));

  EXPECT_EQ(train_here(config({"train.steps=8", "precision.compute=fp64"})), ExitCode::finished);

  EXPECT_EQ(trajectory(dir_).size(), 8u);
  EXPECT_THAT(log(), HasSubstr("changed since then: precision.compute = \"fp64\" (was \"fp32\")"));
}

TEST_F(TrainingRunTest, StartsFromANamedCheckpoint) {
  train_here(config());
  const auto unbroken = trajectory(dir_);
  const std::string start = checkpoint_at(dir_, 8);

  const std::string other = data_.folder() / "other";
  EXPECT_EQ(train_here(data_.config(other, {fmt::format("checkpoint.resume=\"{}\"", start)})), ExitCode::finished);

  EXPECT_THAT(trajectory(other), ElementsAreArray(std::vector(unbroken.begin() + 8, unbroken.end())));
}

TEST_F(TrainingRunTest, WritesNothingBeforeItsInputsAreKnownToBeGood) {
  EXPECT_THROW(train_here(config({"data.valid=\"/nowhere/x\""})), tensor::DataError);

  EXPECT_FALSE(std::filesystem::exists(dir_));
}

TEST_F(TrainingRunTest, NeverAppliesAStepThatIsNotFinite) {
  train_here(config({"train.steps=4"}));
  const auto before = files_in(dir_ + "/checkpoints");
  const auto explodes = config({"optimizer.lr=1e6", "lr_schedule.warmup_steps=0", "lr_schedule.kind=constant",
                                "lr_schedule.min_lr=0", "train.max_grad_norm=0", "precision.compute=fp32",
                                "train.steps=200", "checkpoint.every_steps=0", "train.eval_every=0"});

  const std::string message = tests::message_of<tensor::NumericsError>([&] { train_here(explodes); });

  EXPECT_THAT(message, HasSubstr("The step was not applied"));
  EXPECT_THAT(log(), HasSubstr("The step was not applied"));
  EXPECT_TRUE(files_in(dir_ + "/checkpoints") == before);
}

}  // namespace
}  // namespace trainer
