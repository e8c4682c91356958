#include "trainer/cli.h"

#include <gmock/gmock.h>

#include "tensor/error.h"

namespace trainer {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

template <class T>
T parsed(const Words& words) {
  const Command command = parse_command_line(words);
  EXPECT_TRUE(std::holds_alternative<T>(command));
  return std::holds_alternative<T>(command) ? std::get<T>(command) : T{};
}

std::string usage_error(const Words& words) {
  try {
    parse_command_line(words);
  } catch (const tensor::ConfigError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(CommandLine, TrainsAConfigWithAndWithoutTheWord) {
  for (const Words& words : {Words{"configs/a.toml"}, Words{"train", "configs/a.toml"}}) {
    const TrainCommand command = parsed<TrainCommand>(words);
    EXPECT_EQ(command.run.config, "configs/a.toml");
    EXPECT_EQ(command.run.device, DeviceChoice::automatic);
    EXPECT_EQ(command.run.num_threads, 0);
    EXPECT_TRUE(command.run.overrides.empty());
  }
}

TEST(CommandLine, TakesOptionsBeforeAndAfterTheConfig) {
  const TrainCommand command = parsed<TrainCommand>(
      {"--set", "train.steps=3", "a.toml", "--set", "data.train=[\"a\", \"b\"]", "--device", "cpu", "--threads=2"});

  EXPECT_EQ(command.run.config, "a.toml");
  EXPECT_EQ(command.run.overrides, (Words{"train.steps=3", "data.train=[\"a\", \"b\"]"}));
  EXPECT_EQ(command.run.device, DeviceChoice::cpu);
  EXPECT_EQ(command.run.num_threads, 2);
}

TEST(CommandLine, KeepsValuesWithEqualsSignsAndSpacesWhole) {
  EXPECT_EQ(parsed<TrainCommand>({"a.toml", "--set", "run.name='a = b'"}).run.overrides, Words{"run.name='a = b'"});
}

TEST(CommandLine, Evaluates) { EXPECT_EQ(parsed<EvalCommand>({"eval", "a.toml"}).run.config, "a.toml"); }

TEST(CommandLine, Samples) {
  const SampleCommand command =
      parsed<SampleCommand>({"sample", "a.toml", "--prompt", "In the beginning ", "--tokens", "7", "--temperature",
                             "0.5", "--top-k", "40", "--top-p", "0.9", "--seed", "11", "--device", "cuda"});

  EXPECT_EQ(command.prompt, "In the beginning ");
  EXPECT_EQ(command.num_tokens, 7);
  EXPECT_EQ(command.sampling.temperature, 0.5);
  EXPECT_EQ(command.sampling.top_k, 40);
  EXPECT_EQ(command.sampling.top_p, 0.9);
  EXPECT_EQ(command.sampling.seed, 11u);
  EXPECT_EQ(command.run.device, DeviceChoice::cuda);
}

TEST(CommandLine, TakesAnEmptyPrompt) {
  EXPECT_EQ(parsed<SampleCommand>({"sample", "a.toml", "--prompt", ""}).prompt, "");
}

TEST(CommandLine, Plans) {
  const PlanCommand command = parsed<PlanCommand>({"plan", "a.toml", "--world", "1024", "--rank", "7", "--json"});

  EXPECT_EQ(command.run.config, "a.toml");
  EXPECT_EQ(command.world_size, 1024);
  EXPECT_EQ(command.rank, 7);
  EXPECT_TRUE(command.is_json);
  EXPECT_EQ(parsed<PlanCommand>({"plan", "a.toml"}).world_size, 0);
  EXPECT_THAT(usage_error({"plan", "a.toml", "--wrld", "8"}), HasSubstr("did you mean --world?"));
}

TEST(CommandLine, BuildsData) {
  const data::BuildOptions options =
      parsed<DataBuildCommand>({"data", "build", "a.txt", "b.txt", "--output", "out/x", "--documents", "jsonl",
                                "--json-key", "body", "--tokenizer", "t.json", "--append-eod", "--eod-token", "<end>",
                                "--valid-fraction", "0.1", "--overwrite"})
          .options;

  EXPECT_EQ(options.inputs, (Words{"a.txt", "b.txt"}));
  EXPECT_EQ(options.output_prefix, "out/x");
  EXPECT_EQ(options.documents, data::DocumentSplit::jsonl);
  EXPECT_EQ(options.json_key, "body");
  EXPECT_EQ(options.tokenizer, "t.json");
  EXPECT_TRUE(options.append_eod);
  EXPECT_EQ(options.eod_token, "<end>");
  EXPECT_EQ(options.valid_fraction, 0.1);
  EXPECT_TRUE(options.overwrite);
}

TEST(CommandLine, InspectsData) {
  const DataInspectCommand command = parsed<DataInspectCommand>({"data", "inspect", "x.bin", "--tokenizer", "bytes"});

  EXPECT_EQ(command.paths, Words{"x.bin"});
  EXPECT_EQ(command.tokenizer, "bytes");
}

TEST(CommandLine, ShowsHelpWithAnExampleForEveryCommand) {
  for (const Words& words :
       {Words{"--help"}, Words{"-h"}, Words{"train", "--help"}, Words{"eval", "--help"}, Words{"sample", "--help"},
        Words{"verify", "--help"}, Words{"plan", "--help"}, Words{"data", "--help"}, Words{"data", "build", "--help"},
        Words{"data", "inspect", "--help"}}) {
    const std::string text = parsed<ShowText>(words).text;
    EXPECT_THAT(text, HasSubstr("Example"));
    EXPECT_THAT(text, HasSubstr(" trainer "));
  }
  EXPECT_THAT(parsed<ShowText>({"sample", "--help"}).text, HasSubstr("--temperature"));
}

TEST(CommandLine, ListsOnlyCommandsThatExist) {
  const std::string text = parsed<ShowText>({"--help"}).text;

  for (const char* command : {"train", "eval", "sample", "verify", "plan", "data"})
    EXPECT_THAT(text, HasSubstr(command));
  for (const char* later : {"report", "checkpoint list"}) EXPECT_THAT(text, testing::Not(HasSubstr(later)));
}

TEST(CommandLine, ShowsItsVersion) { EXPECT_THAT(parsed<ShowText>({"--version"}).text, HasSubstr("trainer 0.")); }

struct Misuse {
  Words words;
  std::string tells;
};
void PrintTo(const Misuse& misuse, std::ostream* out) { *out << misuse.tells; }

class CommandLineMistake : public testing::TestWithParam<Misuse> {};

TEST_P(CommandLineMistake, IsToldWithItsFix) {
  const std::string message = usage_error(GetParam().words);

  EXPECT_THAT(message, testing::StartsWith("command line: "));
  EXPECT_THAT(message, HasSubstr(GetParam().tells));
  EXPECT_THAT(message, HasSubstr("Fix: "));
}

INSTANTIATE_TEST_SUITE_P(
    All, CommandLineMistake,
    testing::Values(Misuse{{}, "nothing to do"}, Misuse{{"tarin", "a.toml"}, "did you mean 'trainer train'?"},
                    Misuse{{"xyzzy"}, "train, eval, sample, verify, plan, data or checkpoint"},
                    Misuse{{"train"}, "CONFIG"}, Misuse{{"train", "a.toml", "b.toml"}, "b.toml"},
                    Misuse{{"a.toml", "--treads", "2"}, "did you mean --threads?"},
                    Misuse{{"a.toml", "--theads=2"}, "did you mean --threads?"},
                    Misuse{{"a.toml", "--threads", "two"}, "two"}, Misuse{{"a.toml", "--threads", "0"}, "0"},
                    Misuse{{"a.toml", "--threads"}, "--threads"}, Misuse{{"a.toml", "--device", "gpu"}, "gpu"},
                    Misuse{{"a.toml", "--set"}, "--set"}, Misuse{{"sample", "a.toml"}, "--prompt"},
                    Misuse{{"sample", "a.toml", "--prompt", "x", "--top-p", "1.5"}, "1.5"},
                    Misuse{{"sample", "a.toml", "--prompt", "x", "--temperature", "nan"}, "--temperature = nan"},
                    Misuse{{"sample", "a.toml", "--prompt", "x", "--temprature", "1"}, "did you mean --temperature?"},
                    Misuse{{"sample", "a.toml", "--prompt", "x", "--tokens", "99999999999999999999"}, "99999999"},
                    Misuse{{"data"}, "subcommand"}, Misuse{{"data", "biuld", "a.txt"}, "did you mean build?"},
                    Misuse{{"data", "build", "a.txt"}, "--output"},
                    Misuse{{"data", "build", "a.txt", "--output", "x", "--documents", "line"}, "line"},
                    Misuse{{"data", "build", "--output", "x"}, "INPUT"}, Misuse{{"data", "inspect"}, "FILE"},
                    Misuse{{"--verison"}, "did you mean --version?"}));

}  // namespace
}  // namespace trainer
