/// The program, stopped and killed at moments that no one chose, ends as if nothing had happened.

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <random>

#include "tests/trainer/program.h"
#include "tests/trainer/tiny_run.h"

namespace trainer {
namespace {

constexpr int64_t kSteps = 40;

class ProcessResume : public testing::Test {
 protected:
  ProcessResume() { tests::write_file(data_.folder() / "tiny.toml", data_.config_text()); }

  /// A run long enough to be hit: each step takes some milliseconds.
  tests::CommandLine command() const {
    return trainer_command(
        {"tiny.toml", "--set", fmt::format("train.steps={}", kSteps), "--set", "train.global_batch_size=32", "--set",
         "train.micro_batch_size=4", "--set", "model.ffn_hidden_size=256", "--set", "checkpoint.every_steps=3"},
        data_.folder().path());
  }
  int64_t num_lines() const {
    const std::string text = tests::read_file(dir_ + "/metrics.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  }
  /// Runs until the metrics have so many steps, then sends the signal. Gives how it ended.
  tests::Outcome run_until(int64_t step, int signal) const {
    tests::ChildProcess child(command());
    while (!child.has_ended() && num_lines() < step) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    child.send(signal);
    return child.wait();
  }
  void train_unbroken() {
    const tests::Outcome outcome = tests::run_command(command());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
    trajectory_ = trajectory(dir_);
    ASSERT_EQ(std::ssize(trajectory_), kSteps);
    last_checkpoint_ = files_in(checkpoint_at(dir_, kSteps));
    std::filesystem::remove_all(dir_);
  }
  void expect_the_same_end() const {
    EXPECT_THAT(trajectory(dir_), testing::ElementsAreArray(trajectory_));
    EXPECT_TRUE(files_in(checkpoint_at(dir_, kSteps)) == last_checkpoint_);
  }

  TinyData data_;
  std::string dir_ = data_.folder() / "runs/tiny";
  std::vector<std::string> trajectory_;
  std::map<std::string, std::string> last_checkpoint_;
  std::mt19937 random_{7};
};

TEST_F(ProcessResume, AfterBeingStoppedEndsAsIfUnbroken) {
  train_unbroken();

  int num_stops = 0;
  for (int64_t step = 1; step < kSteps - 8; step += 4 + random_() % 8) {
    const int signal = std::array{SIGTERM, SIGINT, SIGUSR1}[num_stops % 3];
    const tests::Outcome outcome = run_until(step, signal);
    if (outcome.exit_code == 0) break;  // it was faster than the signal
    ASSERT_EQ(outcome.exit_code, 75) << outcome.errors;
    EXPECT_THAT(outcome.output, testing::HasSubstr("Run the same command again to go on."));
    ++num_stops;
  }
  EXPECT_EQ(tests::run_command(command()).exit_code, 0);

  EXPECT_GT(num_stops, 0);
  expect_the_same_end();
}

TEST_F(ProcessResume, AfterBeingKilledEndsAsIfUnbroken) {
  train_unbroken();

  int num_kills = 0;
  for (int64_t step = 1; step < kSteps - 8; step += 4 + random_() % 8) {
    num_kills += run_until(step, SIGKILL).exit_code == 128 + SIGKILL ? 1 : 0;
  }
  EXPECT_EQ(tests::run_command(command()).exit_code, 0);

  EXPECT_GT(num_kills, 0);
  expect_the_same_end();
  for (const auto& [name, bytes] : files_in(dir_)) EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
}

TEST_F(ProcessResume, OfAFinishedRunChangesNothing) {
  ASSERT_EQ(tests::run_command(command()).exit_code, 0);
  const auto before = files_in(dir_);

  const tests::Outcome outcome = tests::run_command(command());

  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, testing::HasSubstr("finished step 40 of 40"));
  EXPECT_TRUE(files_in(dir_) == before);
}

}  // namespace
}  // namespace trainer
