/// What people do wrong, through the program itself: one message, the exit code, nothing written.

#include <gmock/gmock.h>

#include "tests/trainer/program.h"
#include "tests/trainer/tiny_run.h"

namespace trainer {
namespace {

using Arguments = std::vector<std::string>;
using testing::HasSubstr;

class ProcessTest : public testing::Test {
 protected:
  ProcessTest() { tests::write_file(path("tiny.toml"), data_.config_text()); }
  std::string path(const std::string& name) const { return data_.folder() / name; }
  tests::Outcome run(Arguments arguments) const { return run_trainer(std::move(arguments), data_.folder().path()); }
  tests::Outcome run_with(const std::string& setting) const { return run({"tiny.toml", "--set", setting}); }
  std::string checkpoint(int64_t step) const { return checkpoint_at(path("runs/tiny"), step); }

  TinyData data_;
};

struct ConfigMistake {
  std::string name;
  Arguments arguments;
  int exit_code;
  std::string tells;
  std::string text{};  ///< of bad.toml
};
void PrintTo(const ConfigMistake& mistake, std::ostream* out) { *out << mistake.name; }

class ProcessConfigMistake : public ProcessTest, public testing::WithParamInterface<ConfigMistake> {};

TEST_P(ProcessConfigMistake, IsOneMessageAndLeavesNothing) {
  const ConfigMistake& mistake = GetParam();
  tests::write_file(path("bad.toml"), mistake.text);
  const auto before = files_in(data_.folder().path());

  const tests::Outcome outcome = run(mistake.arguments);

  expect_refusal(outcome, mistake.exit_code, mistake.tells);
  EXPECT_TRUE(files_in(data_.folder().path()) == before);
  EXPECT_FALSE(std::filesystem::exists(path("runs")));
}

Arguments with(const std::string& setting) { return {"tiny.toml", "--set", setting}; }

INSTANTIATE_TEST_SUITE_P(
    CommandLine, ProcessConfigMistake,
    testing::Values(ConfigMistake{"NoArguments", {}, 2, "give a config"},
                    ConfigMistake{"UnknownOption", {"tiny.toml", "--stes", "3"}, 2, "--stes"},
                    ConfigMistake{"UnknownCommand", {"trian", "tiny.toml"}, 2, "trian"},
                    ConfigMistake{"SettingWithoutValue", with("train.steps"), 2, "train.steps"},
                    ConfigMistake{"UnknownSetting", with("train.step=3"), 2, "train.steps"},
                    ConfigMistake{"CudaOnACpu", {"tiny.toml", "--device", "cuda"}, 3, "--device cuda"},
                    ConfigMistake{"SampleWithoutTokenizer", {"sample", "tiny.toml", "--prompt", "x"}, 2, "tokenizer"},
                    ConfigMistake{"EvalWithoutTraining", {"eval", "tiny.toml"}, 5, "no checkpoint"}),
    [](const auto& mistake) { return mistake.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Files, ProcessConfigMistake,
    testing::Values(ConfigMistake{"MissingFile", {"absent.toml"}, 2, "absent.toml"},
                    ConfigMistake{"Folder", {"/"}, 2, "/"},
                    ConfigMistake{"EmptyFile", {"bad.toml"}, 2, "the file is empty"},
                    ConfigMistake{"BinaryFile",
                                  {"bad.toml"},
                                  2,
                                  "bad.toml",
                                  std::string("\x7f"
                                              "ELF\0\1\2\xff",
                                              8)},
                    ConfigMistake{"NotToml", {"bad.toml"}, 2, "bad.toml:1", "steps: 3\n"},
                    ConfigMistake{"DuplicateKey", {"bad.toml"}, 2, "bad.toml:3", "[train]\nsteps = 1\nsteps = 2\n"}),
    [](const auto& mistake) { return mistake.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Values, ProcessConfigMistake,
    testing::Values(ConfigMistake{"WrongType", with("model.num_layers=\"two\""), 2, "model.num_layers"},
                    ConfigMistake{"OutOfRange", with("optimizer.lr=-1"), 2, "optimizer.lr"},
                    ConfigMistake{"UnknownWord", with("precision.compute=fp8"), 2, "precision.compute"},
                    ConfigMistake{"Contradiction", with("train.micro_batch_size=3"), 2, "does not divide"},
                    ConfigMistake{"Heads", with("model.num_heads=6"), 2, "does not divide"},
                    ConfigMistake{"EndOfDecay", with("lr_schedule.warmup_steps=13"), 2, "warmup_steps"},
                    ConfigMistake{"LayoutOfManyRanks", with("parallel.tp=2"), 3, "parallel.tp"}),
    [](const auto& mistake) { return mistake.param.name; });

struct DataMistake {
  std::string name;
  std::string bytes;     ///< of bad.bin, unless empty and `index` too
  std::string index{};   ///< of bad.idx
  std::string source{};  ///< instead of bad.bin
  std::string tells = "bad.bin";
};
void PrintTo(const DataMistake& mistake, std::ostream* out) { *out << mistake.name; }

class ProcessDataMistake : public ProcessTest, public testing::WithParamInterface<DataMistake> {};

TEST_P(ProcessDataMistake, IsOneMessageAndLeavesNothing) {
  const DataMistake& mistake = GetParam();
  tests::write_file(path("bad.bin"), mistake.bytes);
  if (!mistake.index.empty()) tests::write_file(path("bad.idx"), mistake.index);
  const std::string source = mistake.source.empty() ? "bad.bin" : mistake.source;

  const tests::Outcome outcome = run_with("data.train=\"" + source + "\"");

  expect_refusal(outcome, 4, mistake.tells);
  EXPECT_FALSE(std::filesystem::exists(path("runs")));
}

template <class... Numbers>
std::string little_endian(Numbers... numbers) {
  std::string bytes;
  (bytes.append(reinterpret_cast<const char*>(&numbers), sizeof numbers), ...);
  return bytes;
}

/// A Megatron index of one document of `num_tokens` u16 ids.
std::string index_of(int32_t num_tokens, uint8_t dtype = 8, uint64_t num_sequences = 1) {
  return std::string("MMIDIDX\0\0", 9) + little_endian(uint64_t{1}, dtype, num_sequences, uint64_t{2}, num_tokens) +
         little_endian(int64_t{0}, int64_t{0}, int64_t{1});
}
/// An llm.c header of 256 numbers that promises `num_tokens`.
std::string llmc_header(int32_t num_tokens) {
  return little_endian(int32_t{20240520}, int32_t{1}, num_tokens) + std::string(4 * 253, '\0');
}
std::string tokens(size_t count, uint16_t id = 1) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += little_endian(id);
  return bytes;
}

INSTANTIATE_TEST_SUITE_P(
    All, ProcessDataMistake,
    testing::Values(DataMistake{"Missing", "", "", "absent.bin", "absent"}, DataMistake{"Folder", "", "", ".", "."},
                    DataMistake{"Empty", ""},
                    DataMistake{"Text", "In the beginning God created the heaven and the earth. And the earth was!"},
                    DataMistake{"HalfAToken", tokens(100) + "x"}, DataMistake{"ShorterThanASample", tokens(10)},
                    DataMistake{"IdsBeyondTheVocabulary", tokens(1000, 64), "", "", "64"},
                    DataMistake{"TruncatedBin", tokens(99), index_of(100), "", "bad"},
                    DataMistake{"TruncatedIndex", tokens(100), index_of(100).substr(0, 40), "", "bad.idx"},
                    DataMistake{"IndexOfFloats", tokens(100), index_of(100, 7), "", "bad.idx"},
                    DataMistake{"IndexThatOverflows", tokens(100), index_of(100, 8, uint64_t{1} << 62), "", "bad.idx"},
                    DataMistake{"LengthThatIsNegative", tokens(100), index_of(-5), "", "bad.idx"},
                    DataMistake{"EmptyIndex", tokens(100), std::string(34, '\0'), "", "bad.idx"},
                    DataMistake{"HeaderThatPromisesMore", llmc_header(1000) + tokens(10)},
                    DataMistake{"HeaderThatIsNegative", llmc_header(-1) + tokens(10)}),
    [](const auto& mistake) { return mistake.param.name; });

TEST_F(ProcessTest, RefusesALaunchWhoseRanksDoNotKnowOfEachOther) {
  tests::CommandLine command = trainer_command({"tiny.toml"}, data_.folder().path());
  command.environment.push_back("SLURM_STEP_NUM_TASKS=4");
  command.environment.push_back("OMPI_MCA_ess_singleton_isolated=1");

  expect_refusal(tests::run_command(command), 3, "SLURM_STEP_NUM_TASKS = 4");
}

TEST_F(ProcessTest, FallsBackFromADamagedCheckpointAndSaysSo) {
  ASSERT_EQ(run({"tiny.toml"}).exit_code, 0);
  tests::write_file(checkpoint(12) + "/index.h5", "not HDF5");

  const tests::Outcome outcome = run({"tiny.toml"});

  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output + outcome.errors, HasSubstr("step_00000012"));
  EXPECT_THAT(outcome.output, HasSubstr("resumed from runs/tiny/checkpoints/step_00000008"));
}

TEST_F(ProcessTest, EndsWhereAllCheckpointsAreDamaged) {
  ASSERT_EQ(run({"tiny.toml"}).exit_code, 0);
  for (const int64_t step : {4, 8, 12})
    std::filesystem::resize_file(checkpoint(step) + "/shards/000/rank_00000.h5", 1000);
  const auto before = files_in(path("runs"));

  expect_refusal(run({"tiny.toml"}), 5, "all 3 checkpoints are damaged");

  EXPECT_TRUE(files_in(path("runs")) == before);
}

TEST_F(ProcessTest, RefusesWhatDoesNotGoOnWithTheRun) {
  ASSERT_EQ(run_with("train.steps=4").exit_code, 0);
  const auto before = files_in(path("runs"));

  expect_refusal(run_with("run.seed=8"), 2, "run.seed = 8");
  expect_refusal(run_with("checkpoint.resume=none"), 2, "checkpoint.resume = \"none\"");
  expect_refusal(run_with("model.num_layers=3"), 5, "num_layers = 2");
  expect_refusal(run_with("model.ffn_hidden_size=64"), 5, "weights/layers.0.mlp.down.weight");
  expect_refusal(run_with("checkpoint.resume=absent.h5"), 5, "absent.h5");

  EXPECT_TRUE(files_in(path("runs")) == before);
}

TEST_F(ProcessTest, EndsWithItsOwnCodeWhereNumbersExplode) {
  const tests::Outcome outcome =
      run({"tiny.toml", "--set", "optimizer.lr=1e6", "--set", "lr_schedule.kind=constant", "--set",
           "lr_schedule.min_lr=0", "--set", "lr_schedule.warmup_steps=0", "--set", "train.max_grad_norm=0", "--set",
           "train.steps=200", "--set", "checkpoint.every_steps=0"});

  EXPECT_EQ(outcome.exit_code, 7) << outcome.errors;
  EXPECT_EQ(count_fixes(outcome.errors), 1) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("gradient norm = "));
  EXPECT_THAT(tests::read_file(path("runs/tiny/log.txt")), HasSubstr("gradient norm = "));
}

TEST_F(ProcessTest, NamesAFolderThatItCannotCreate) {
  tests::write_file(path("occupied"), "a file");

  expect_refusal(run_with("run.dir=occupied"), 6, "occupied");
  expect_refusal(run_with("checkpoint.dir=occupied/below"), 6, "occupied");
  EXPECT_EQ(tests::read_file(path("occupied")), "a file");
}

/// A limit on the size of files stands for a full disk: writing fails in the middle.
TEST_F(ProcessTest, EndsOnAFullDiskWithTheOlderCheckpointIntact) {
  ASSERT_EQ(run_with("train.steps=4").exit_code, 0);
  const auto before = files_in(checkpoint(4));
  tests::CommandLine command = trainer_command({"tiny.toml"}, data_.folder().path());
  command.arguments = {"/bin/sh", "-c", "trap '' XFSZ; ulimit -f 200; exec \"$0\" tiny.toml", TRAINER_BINARY};

  const tests::Outcome outcome = tests::run_command(command);

  EXPECT_EQ(outcome.exit_code, 6) << outcome.errors;
  EXPECT_EQ(count_fixes(outcome.errors), 1) << outcome.errors;
  EXPECT_TRUE(files_in(checkpoint(4)) == before);
  EXPECT_FALSE(std::filesystem::exists(checkpoint(8)));
}

}  // namespace
}  // namespace trainer
