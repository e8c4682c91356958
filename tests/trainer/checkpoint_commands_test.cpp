/// `trainer checkpoint ...`, as people type it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/program.h"
#include "tests/trainer/tiny_run.h"

namespace trainer {
namespace {

using testing::HasSubstr;
using testing::Not;

using Arguments = std::vector<std::string>;

class CheckpointCommands : public testing::Test {
 protected:
  CheckpointCommands() { train_here(data_.config(path("run"), {"checkpoint.every_steps=4", "train.steps=12"})); }

  std::string path(const std::string& name) const { return data_.folder() / name; }
  std::string step(int64_t step) const { return checkpoint_at(path("run"), step); }
  std::string dir() const { return path("run/checkpoints"); }

  tests::Outcome run(Arguments arguments) const {
    arguments.insert(arguments.begin(), "checkpoint");
    return tests::run_command(trainer_command(arguments, data_.folder().path()));
  }
  void flip_a_weight(int64_t step) const {
    const std::string shard = this->step(step) + "/shards/000/rank_00000.h5";
    std::string bytes = tests::read_file(shard);
    bytes[bytes.size() / 2] ^= 1;
    tests::write_file(shard, bytes);
  }

  TinyData data_;
};

TEST_F(CheckpointCommands, ListShowsEachWithItsState) {
  std::filesystem::remove(step(8) + "/index.h5");
  tests::write_file(step(4) + "/KEEP", "");

  const tests::Outcome outcome = run({"list", dir()});

  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, testing::ContainsRegex("step_00000004 .* whole, KEEP"));
  EXPECT_THAT(outcome.output, testing::ContainsRegex("step_00000008 .* DAMAGED"));
  EXPECT_THAT(outcome.output, HasSubstr("index.h5"));
  EXPECT_THAT(outcome.output, testing::ContainsRegex("step_00000012 .* whole"));
}

TEST_F(CheckpointCommands, InspectShowsTensorsAndTheConfig) {
  const tests::Outcome outcome = run({"inspect", step(12)});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("step 12, "));
  EXPECT_THAT(outcome.output, testing::ContainsRegex("weights/embedding.token.weight +fp32 +\\[64, 32\\]"));
  EXPECT_THAT(outcome.output, HasSubstr("shards/000/rank_00000.h5"));

  const tests::Outcome config = run({"inspect", step(12), "--config"});
  EXPECT_THAT(config.output, HasSubstr("[model]"));
  EXPECT_THAT(config.output, Not(HasSubstr("embedding.token")));
}

TEST_F(CheckpointCommands, VerifyEndsWith5WhereOneIsDamaged) {
  EXPECT_EQ(run({"verify", step(4), step(8), step(12)}).exit_code, 0);
  flip_a_weight(8);

  const tests::Outcome outcome = run({"verify", step(4), step(8), step(12)});

  EXPECT_EQ(outcome.exit_code, 5);
  EXPECT_THAT(outcome.errors, HasSubstr(step(8) + "/shards/000/rank_00000.h5"));
  EXPECT_THAT(outcome.output, HasSubstr(step(4) + ": good"));
  EXPECT_THAT(outcome.output, HasSubstr(step(8) + ": DAMAGED"));
}

TEST_F(CheckpointCommands, DiffEndsWith7WhereStatesDiffer) {
  const tests::Outcome differs = run({"diff", step(8), step(12)});
  EXPECT_EQ(differs.exit_code, 7);
  EXPECT_THAT(differs.output, HasSubstr("step: 8 in A, 12 in B"));
  EXPECT_THAT(differs.output, HasSubstr("elements differ, by at most"));

  const tests::Outcome same = run({"diff", step(12), step(12)});
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_THAT(same.output, HasSubstr("equal: "));
}

TEST_F(CheckpointCommands, ConsolidateWritesAFileThatARunGoesOnFrom) {
  const tests::Outcome outcome = run({"consolidate", step(8), "whole.h5"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(run({"diff", step(8), "whole.h5"}).exit_code, 0);

  const auto unbroken = trajectory(path("run"));
  const std::string start = fmt::format("checkpoint.resume=\"{}\"", path("whole.h5"));
  train_here(data_.config(path("other"), {start, "checkpoint.every_steps=4", "train.steps=12"}));
  EXPECT_THAT(trajectory(path("other")), testing::ElementsAreArray(std::vector(unbroken.begin() + 8, unbroken.end())));
}

TEST_F(CheckpointCommands, RebuildIndexMendsWhatWasLost) {
  std::filesystem::remove(step(12) + "/index.h5");
  EXPECT_EQ(run({"inspect", step(12)}).exit_code, 5);

  EXPECT_EQ(run({"rebuild-index", step(12)}).exit_code, 0);

  EXPECT_EQ(run({"verify", step(12)}).exit_code, 0);
}

TEST_F(CheckpointCommands, PruneSaysWhatItDeletes) {
  const tests::Outcome outcome = run({"prune", dir(), "--keep-last", "1", "--keep-every", "8"});

  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, fmt::format("deleted {}\nkept step_00000008, step_00000012\n", step(4)));
  EXPECT_FALSE(std::filesystem::exists(step(4)));
}

TEST_F(CheckpointCommands, MistakesAreExplained) {
  EXPECT_EQ(run({"list", "nowhere"}).exit_code, 5);
  EXPECT_EQ(run({"inspect", "nowhere"}).exit_code, 5);
  EXPECT_EQ(run({"prune", dir()}).exit_code, 2);
  EXPECT_EQ(run({"prune", dir(), "--keep-last", "0"}).exit_code, 2);
  const tests::Outcome typo = run({"lisst", dir()});
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_THAT(typo.errors, HasSubstr("did you mean list?"));
  for (const char* name : {"list", "inspect", "verify", "diff", "consolidate", "rebuild-index", "prune"}) {
    const tests::Outcome help = run({name, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.output, HasSubstr("Example"));
  }
}

}  // namespace
}  // namespace trainer
