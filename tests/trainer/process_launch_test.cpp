/// Launches of several ranks that cannot be run, through mpirun: one message with the arithmetic, exit 3, soon.

#include <gmock/gmock.h>

#include <sstream>

#include "tests/trainer/program.h"
#include "tests/trainer/tiny_run.h"

namespace trainer {
namespace {

using testing::HasSubstr;

struct Launch {
  std::string name;
  int num_ranks;
  std::vector<std::string> settings;
  std::vector<std::string> tells;
  int64_t num_fixes = 1;
};
void PrintTo(const Launch& launch, std::ostream* out) { *out << launch.name; }

tests::Outcome run_ranks(int num_ranks, const std::vector<std::string>& arguments, const std::string& folder) {
  tests::CommandLine command = trainer_command(arguments, folder);
  std::istringstream words(TRAINER_MPIEXEC);
  std::vector<std::string> launcher{std::istream_iterator<std::string>(words), {}};
  launcher.insert(launcher.end(), {"-np", std::to_string(num_ranks)});
  command.arguments.insert(command.arguments.begin(), launcher.begin(), launcher.end());
  command.environment.insert(command.environment.end(), {"OMP_NUM_THREADS=1", "OMPI_MCA_mpi_yield_when_idle=1"});
  return tests::run_command(command);
}

std::vector<std::string> with(const std::vector<std::string>& settings) {
  std::vector<std::string> arguments = {"tiny.toml"};
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  return arguments;
}

class ProcessLaunch : public testing::Test {
 protected:
  ProcessLaunch() { tests::write_file(data_.folder() / "tiny.toml", data_.config_text()); }
  TinyData data_;
};

class WrongLaunch : public ProcessLaunch, public testing::WithParamInterface<Launch> {};

TEST_P(WrongLaunch, IsRefusedOnceAndSoon) {
  const Launch& launch = GetParam();
  const auto begin = std::chrono::steady_clock::now();

  const tests::Outcome outcome = run_ranks(launch.num_ranks, with(launch.settings), data_.folder().path());

  EXPECT_EQ(outcome.exit_code, 3) << outcome.errors;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(count_fixes(outcome.errors), launch.num_fixes) << outcome.errors;
  for (const std::string& tells : launch.tells) EXPECT_THAT(outcome.errors, HasSubstr(tells));
  EXPECT_THAT(outcome.errors, testing::Not(HasSubstr("bug in trainer")));
  EXPECT_FALSE(std::filesystem::exists(data_.folder() / "runs"));
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongLaunch,
    testing::Values(
        Launch{"WorldThatTpDoesNotDivide", 3, {"parallel.tp=2"}, {"= 2 does not divide the 3 ranks", "launch 2 or 4"}},
        Launch{"DpThatDoesNotFillTheWorld",
               4,
               {"parallel.tp=2", "parallel.dp=3"},
               {"tp * sp * pp * dp = 2 * 1 * 1 * 3 = 6, but this launch has 4 ranks", "parallel.dp = 2"}},
        Launch{"DpOutThatDoesNotDivideDp", 2, {"parallel.dp_out=4"}, {"dp_out", "4"}},
        Launch{"HeadsThatTpDoesNotDivide",
               4,
               {"parallel.tp=4", "model.num_heads=3", "model.num_kv_heads=3", "model.head_dim=8",
                "model.ffn_hidden_size=64"},
               {"parallel.tp = 4 does not divide model.num_heads = 3", "does not fit model.num_kv_heads = 3"},
               2},
        Launch{
            "FfnThatTpDoesNotDivide", 2, {"parallel.tp=2", "model.ffn_hidden_size=63"}, {"model.ffn_hidden_size = 63"}},
        Launch{"TokensThatTpDoesNotDivide",
               2,
               {"parallel.tp=2", "parallel.tp_sequence=true", "model.seq_len=15"},
               {"model.seq_len = 15", "turn parallel.tp_sequence off"}},
        Launch{"BatchThatDpDoesNotDivide", 3, {}, {"train.global_batch_size = 4", "3 data-parallel ranks", "use 6 or"}},
        Launch{"SequencesThatSpDoesNotCut", 2, {"parallel.sp=2", "model.seq_len=18"}, {"model.seq_len = 18"}},
        Launch{"HeadsThatUlyssesDoesNotHave",
               4,
               {"parallel.sp=4", "parallel.sp_method=ulysses", "model.num_heads=2", "model.num_kv_heads=2"},
               {"4 * 1 = 4 is more than model.num_heads = 2", "ring"}},
        Launch{"ScheduleThatPipelinesCannotRun",
               2,
               {"parallel.pp=2", "parallel.schedule=dualpipe_v", "train.micro_batch_size=2"},
               {"dualpipe_v", "4"}},
        Launch{"StagesOfAnotherPipeline",
               2,
               {"parallel.pp=2", "parallel.stages=[1,1,0]"},
               {"lists 3 stages", "2 * 1 = 2"}},
        Launch{"StagesThatLoseALayer", 2, {"parallel.pp=2", "parallel.stages=[0,1]"}, {"adds up to 1 layers"}}),
    [](const auto& launch) { return launch.param.name; });

TEST_F(ProcessLaunch, TrainsAndVerifiesOnTwoRanks) {
  const tests::Outcome trained =
      run_ranks(2, with({"train.steps=4", "train.eval_every=2", "parallel.zero_stage=3"}), data_.folder().path());
  EXPECT_EQ(trained.exit_code, 0) << trained.errors;
  EXPECT_THAT(trained.output, HasSubstr("finished step 4 of 4"));
  EXPECT_EQ(trajectory(data_.folder() / "runs/tiny").size(), 4u);

  std::vector<std::string> arguments = with({"parallel.tp=2"});
  arguments.insert(arguments.begin(), "verify");
  const tests::Outcome verified = run_ranks(2, arguments, data_.folder().path());
  EXPECT_EQ(verified.exit_code, 0) << verified.output << verified.errors;
  EXPECT_THAT(verified.output, HasSubstr("2 ranks against one"));
}

}  // namespace
}  // namespace trainer
