/// The commands, through the program: what they print and how they end.

#include <gmock/gmock.h>

#include <filesystem>

#include "tests/trainer/program.h"
#include "tests/trainer/tiny_run.h"

namespace trainer {
namespace {

using Arguments = std::vector<std::string>;
using testing::HasSubstr;

class CommandsTest : public testing::Test {
 protected:
  CommandsTest() { tests::write_file(path("tiny.toml"), data_.config_text()); }
  std::string path(const std::string& name) const { return data_.folder() / name; }
  tests::Outcome run(Arguments arguments) const { return run_trainer(std::move(arguments), data_.folder().path()); }

  TinyData data_;
};

TEST_F(CommandsTest, TrainPrintsStepsAndWritesTheRunsFolder) {
  const tests::Outcome outcome = run({"train", "tiny.toml"});

  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.errors, "");
  EXPECT_THAT(outcome.output, HasSubstr("step 10/12  loss "));
  EXPECT_THAT(outcome.output, HasSubstr("finished step 12 of 12; the run is in runs/tiny"));
  EXPECT_EQ(outcome.output.find('\x1b'), std::string::npos) << "codes of a terminal in a file";
  for (const char* name : {"config.toml", "log.txt", "metrics.jsonl", "checkpoints/step_00000012.h5"}) {
    EXPECT_TRUE(std::filesystem::exists(path("runs/tiny/") + name)) << name;
  }
}

TEST_F(CommandsTest, TheResolvedConfigGoesOnWithTheRun) {
  ASSERT_EQ(run({"tiny.toml", "--set", "train.steps=6", "--set", "lr_schedule.decay_steps=3"}).exit_code, 0);

  const tests::Outcome outcome = run({"runs/tiny/config.toml", "--set", "train.steps=8"});

  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("at step 6"));
}

TEST_F(CommandsTest, EvalGivesTheLastValidLossBitwise) {
  ASSERT_EQ(run({"tiny.toml"}).exit_code, 0);
  const auto last = nlohmann::json::parse(trajectory(path("runs/tiny")).back());
  const auto before = files_in(path("runs"));

  const tests::Outcome outcome = run({"eval", "tiny.toml"});

  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("step 12, "));
  const size_t at = outcome.output.find("valid_loss ");
  ASSERT_NE(at, std::string::npos) << outcome.output;
  EXPECT_EQ(std::stod(outcome.output.substr(at + 11)), last["valid_loss"].get<double>());
  EXPECT_TRUE(files_in(path("runs")) == before);
}

TEST_F(CommandsTest, EvalReadsTheNewestCheckpointOfAConfigThatStartsAnew) {
  ASSERT_EQ(run({"tiny.toml", "--set", "checkpoint.resume=none"}).exit_code, 0);

  EXPECT_EQ(run({"eval", "tiny.toml", "--set", "checkpoint.resume=none"}).exit_code, 0);
}

TEST_F(CommandsTest, EvalReadsTheCheckpointThatIsNamed) {
  ASSERT_EQ(run({"tiny.toml"}).exit_code, 0);

  const tests::Outcome outcome =
      run({"eval", "tiny.toml", "--set", "checkpoint.resume=runs/tiny/checkpoints/step_00000008.h5"});

  EXPECT_THAT(outcome.output, HasSubstr("step 8, "));
}

TEST_F(CommandsTest, PlanSaysWhyAPictureCannotBeWritten) {
  EXPECT_EQ(run({"plan", "tiny.toml", "--svg", "schedule.svg"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(path("schedule.svg")));

  const tests::Outcome outcome = run({"plan", "tiny.toml", "--svg", "none/schedule.svg"});

  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_EQ(outcome.output, "");
  EXPECT_THAT(outcome.errors, HasSubstr("none/schedule.svg: the picture of the schedule cannot be written: No such"));
}

/// A model of bytes, trained for a moment.
class SampleCommandTest : public CommandsTest {
 protected:
  SampleCommandTest() {
    std::string text;
    for (int line = 0; line < 300; ++line) text += fmt::format("line {} of a text that repeats itself\n", line % 10);
    tests::write_file(path("text.txt"), text);
    build_ = run({"data", "build", "text.txt", "--output", "text", "--documents", "lines"});
    train_ = run(with({}));
  }
  Arguments with(Arguments arguments) const {
    arguments.insert(arguments.end(),
                     {"tiny.toml", "--set", "data.train=text", "--set", "data.valid=[]", "--set",
                      "data.valid_fraction=0.1", "--set", "data.tokenizer=bytes", "--set", "model.vocab_size=256",
                      "--set", "train.steps=3", "--set", "lr_schedule.warmup_steps=1"});
    return arguments;
  }
  std::string sample(Arguments options) const {
    Arguments arguments = with({"sample"});
    arguments.insert(arguments.end(), options.begin(), options.end());
    const tests::Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
    return outcome.output;
  }

  tests::Outcome build_, train_;
};

TEST_F(SampleCommandTest, IsAFunctionOfItsSeed) {
  ASSERT_EQ(build_.exit_code, 0) << build_.errors;
  ASSERT_EQ(train_.exit_code, 0) << train_.errors;
  EXPECT_THAT(build_.output, HasSubstr("300 documents"));

  const std::string text = sample({"--prompt", "line", "--tokens", "40", "--seed", "1"});

  EXPECT_EQ(text.substr(0, 4), "line");
  EXPECT_EQ(text.size(), 4u + 40 + 1);  // prompt, tokens (bytes), line end
  EXPECT_EQ(sample({"--prompt", "line", "--tokens", "40", "--seed", "1"}), text);
  EXPECT_NE(sample({"--prompt", "line", "--tokens", "40", "--seed", "2"}), text);
}

TEST_F(SampleCommandTest, TakesAPromptLongerThanTheModelsSeqLen) {
  const std::string prompt(100, 'a');

  EXPECT_EQ(sample({"--prompt", prompt, "--tokens", "5"}).size(), 100u + 5 + 1);
}

TEST_F(SampleCommandTest, RefusesAnEmptyPrompt) {
  Arguments arguments = with({"sample"});
  arguments.insert(arguments.end(), {"--prompt", ""});

  expect_refusal(run(arguments), 2, "--prompt");
}

TEST_F(SampleCommandTest, FailsWhereItsOutputDoesNotArrive) {
  Arguments arguments = with({"sample"});
  arguments.insert(arguments.end(), {"--prompt", "line"});
  tests::CommandLine command = trainer_command(arguments, data_.folder().path());
  command.output = "/dev/full";

  EXPECT_EQ(tests::run_command(command).exit_code, 6);
}

TEST_F(CommandsTest, InspectShowsATokenFile) {
  const tests::Outcome outcome = run({"data", "inspect", "a.bin"});

  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("60"));
}

TEST_F(CommandsTest, HelpAndVersionStartWithoutAModel) {
  EXPECT_EQ(run({"--help"}).exit_code, 0);
  EXPECT_THAT(run({"--version"}).output, HasSubstr("0.1.0"));
}

}  // namespace
}  // namespace trainer
