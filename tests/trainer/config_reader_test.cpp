#include "trainer/config_reader.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/trainer/config_samples.h"
#include "trainer/key_suggestions.h"
#include "trainer/toml_precheck.h"

namespace trainer {
namespace {

using testing::HasSubstr;

TEST(Config, ReadsEveryTable) {
  const Config config = parse_config(kValidConfig, "test.toml");

  EXPECT_EQ(config.run.seed, 7);
  EXPECT_EQ(config.model.num_kv_heads, 2);
  EXPECT_EQ(config.model.activation, tensor::Activation::swiglu);
  EXPECT_EQ(config.parallel.dp, 0);
  EXPECT_EQ(config.train.micro_batch_size, 4);
  EXPECT_EQ(config.precision.compute, tensor::Dtype::fp32);
  EXPECT_EQ(config.optimizer.lr, 3e-4);
  EXPECT_EQ(config.lr_schedule.kind, LrScheduleKind::cosine);
  ASSERT_EQ(config.data.train.size(), 2u);
  EXPECT_EQ(config.data.train[1].path, "b.bin");
  EXPECT_EQ(config.data.valid, std::vector<std::string>{"c.bin"});
  EXPECT_EQ(config.checkpoint.resume, "none");
  EXPECT_EQ(config.log.every_steps, 1);
  EXPECT_EQ(config.cluster.peak_tflops, 1.5);
}

TEST(Config, TakesIntegersWhereFloatsAreMeant) {
  const Config config = parse_config(kValidConfig, "test.toml");

  EXPECT_EQ(config.train.max_grad_norm, 1.0);
  EXPECT_EQ(config.model.rope_theta, 10'000.0);
}

TEST(Config, NamesTheRunAfterItsFile) {
  const Config config = parse_config(broken("name = \"test\"", ""), "some/where/gpt-small.toml");

  EXPECT_EQ(config.run.name, "gpt-small");
  EXPECT_EQ(config.run.dir, "runs/gpt-small");
  EXPECT_EQ(config.checkpoint.dir, "runs/gpt-small/checkpoints");
}

TEST(Config, ReadsBackWhatItWrites) {
  const std::vector<std::string> overrides = {"optimizer.lr=0.1",
                                              "optimizer.eps=1.2345678901234567e-9",
                                              "model.rope_scaling.kind=yarn",
                                              "model.rope_scaling.factor=3",
                                              "data.train=[{path='a \"b\"\\c', weight=0.3}]",
                                              "model.norm=layer_norm",
                                              "run.dir='/tmp/\u00e9 x'"};
  const Config config = parse_config(kValidConfig, "test.toml", overrides);
  const std::string written = to_toml(config);

  const Config again = parse_config(written, "written.toml");

  EXPECT_EQ(to_toml(again), written);
  EXPECT_EQ(again.optimizer.eps, 1.2345678901234567e-9);
  EXPECT_EQ(again.data.train[0].path, "a \"b\"\\c");
  EXPECT_EQ(again.data.train[0].weight, 0.3);
  EXPECT_EQ(again.model.rope_scaling.kind, model::RopeScaling::Kind::yarn);
  EXPECT_EQ(again.run.name, "test");
}

TEST(Config, WritesEveryKey) {
  const std::string written = to_toml(parse_config(kValidConfig, "test.toml"));

  for (const std::string& path : all_key_paths()) {
    const std::string key = path.substr(path.rfind('.') + 1);
    if (key == "preset") continue;  // resolved
    EXPECT_THAT(written, HasSubstr("\n" + key + " = ")) << path;
  }
}

TEST(Config, ReportsAllMistakesAtOnceInTheirOrder) {
  std::string text = broken("num_layers = 2", "num_layers = 0");
  text.replace(text.find("lr = 3e-4"), 9, "lr = true");
  text.replace(text.find("seed = 7"), 8, "sed = 7");
  text.replace(text.find("num_kv_heads = 2"), 16, "num_kv_heads = 3");

  const std::string message = refusal_of(text, {"train.stesp=5"}).message;

  std::vector<size_t> places;
  for (const char* part :
       {"test.toml:3: ", "test.toml:7: ", "test.toml:10: ", "test.toml:35: ", "--set train.stesp=5: "})
    places.push_back(message.find(part));
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end())) << message;
  EXPECT_NE(places.back(), std::string::npos) << message;
}

TEST(Config, BlamesNoConsequenceOfAnotherMistake) {
  const std::string message = refusal_of(broken("num_heads = 4", "num_heads = \"four\"")).message;

  EXPECT_THAT(message, HasSubstr("test.toml:9: model.num_heads"));
  EXPECT_THAT(message, testing::Not(HasSubstr("does not divide")));
}

TEST(Config, CountsAWrongLayoutAsConfigErrorBesideOthers) {
  EXPECT_EQ(refusal_of(broken("tp = 1", "ep = 2")).code, tensor::ExitCode::layout);
  EXPECT_EQ(refusal_of(broken("tp = 1", "ep = 2"), {"train.steps=0"}).code, tensor::ExitCode::config);
}

TEST(Config, RefusesAnEvaluationWithoutData) {
  const std::string message = refusal_of(broken("valid = \"c.bin\"", "")).message;

  EXPECT_THAT(message, testing::StartsWith("test.toml:28: train.eval_every = 50"));
  EXPECT_THAT(message, HasSubstr("data.valid_fraction = 0.01"));
}

TEST(Config, EscapesWhatItPrints) {
  const std::string message =
      refusal_of(broken("kind = \"cosine\"", "kind = \"\\u001b[31m" + std::string(5000, 'x') + '"')).message;

  EXPECT_THAT(message, HasSubstr("\\x1b[31m"));
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_LT(message.size(), 1000u);
}

TEST(Override, ReplacesAddsAndMakesTables) {
  const Config config = parse_config(kValidConfig, "test.toml",
                                     {"train.steps=200", "train.steps=300", "optimizer.weight_decay=0",
                                      "model.rope_scaling.kind=\"linear\"", "model.rope_scaling.factor=2"});

  EXPECT_EQ(config.train.steps, 300);
  EXPECT_EQ(config.optimizer.weight_decay, 0);
  EXPECT_EQ(config.model.rope_scaling.factor, 2);
}

TEST(Override, TakesBareWordsAsStrings) {
  const Config config = parse_config(
      kValidConfig, "test.toml",
      {"lr_schedule.kind=linear", "data.train=some/dir/x.bin", "run.name=007", "checkpoint.dir=", "run.dir=true"});

  EXPECT_EQ(config.lr_schedule.kind, LrScheduleKind::linear);
  EXPECT_EQ(config.data.train.at(0).path, "some/dir/x.bin");
  EXPECT_EQ(config.run.name, "007");
  EXPECT_EQ(config.run.dir, "true");
  EXPECT_EQ(config.checkpoint.dir, "true/checkpoints");
}

TEST(Override, SuppliesWhatTheFileLacks) {
  EXPECT_EQ(parse_config(broken("steps = 100", ""), "test.toml", {"train.steps=20"}).train.steps, 20);
}

struct BadOverride {
  std::string text, tells;
};

class OverrideMistake : public testing::TestWithParam<BadOverride> {};

TEST_P(OverrideMistake, NamesTheOverride) {
  const Refusal refusal = refusal_of(kValidConfig, {GetParam().text});

  EXPECT_EQ(refusal.code, tensor::ExitCode::config);
  EXPECT_THAT(refusal.message, testing::StartsWith("--set " + GetParam().text.substr(0, 10)));
  EXPECT_THAT(refusal.message, HasSubstr(GetParam().tells));
  EXPECT_THAT(refusal.message, HasSubstr("Fix: "));
}

INSTANTIATE_TEST_SUITE_P(
    All, OverrideMistake,
    testing::Values(BadOverride{"train.steps", "table.key=value"}, BadOverride{"steps=3", "table.key=value"},
                    BadOverride{"=3", "table.key=value"}, BadOverride{"train..steps=3", "table.key=value"},
                    BadOverride{"trian.steps=3", "did you mean train?"},
                    BadOverride{"train.step=3", "did you mean train.steps?"},
                    BadOverride{"train.steps=many", "train.steps = \"many\" is a string"},
                    BadOverride{"train.steps=0", "train.steps = 0"}, BadOverride{"model=3", "table.key=value"},
                    BadOverride{"model.hidden_size=66", "does not divide"}, BadOverride{"run.name=a b", "is not TOML"},
                    BadOverride{"train.steps=3\nx=4", "is not TOML"},
                    BadOverride{"train.steps=" + std::string(100'000, '['), "is not TOML"}));

TEST(ConfigFile, RefusesWhatIsNoConfig) {
  EXPECT_THAT(refusal_of("").message, testing::StartsWith("test.toml:1: the file is empty"));
  EXPECT_THAT(refusal_of(" \n\t\n").message, HasSubstr("empty"));
  EXPECT_THAT(refusal_of(std::string("\x89HDF\r\n\x1a\n\0\0", 10)).message, HasSubstr("test.toml:1: byte 0x89"));
  EXPECT_THAT(refusal_of(std::string(64, '\0')).message, HasSubstr("byte 0x00"));
  EXPECT_THAT(refusal_of("{\"model\": {\"num_layers\": 3}}").message, HasSubstr("test.toml:1: not valid TOML"));
  EXPECT_THAT(refusal_of("model:\n  num_layers: 3\n").message, HasSubstr("test.toml:1: not valid TOML"));
  EXPECT_THAT(refusal_of("# only a remark\n").message, HasSubstr("model.vocab_size is missing"));
}

TEST(ConfigFile, IsRefusedAboveTheCapWithoutReadingAll) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "huge_config.toml";
  std::ofstream(path).close();
  std::filesystem::resize_file(path, uint64_t{1} << 40);  // sparse

  try {
    load_config(path.string());
    ADD_FAILURE() << "accepted";
  } catch (const tensor::ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("larger than 262144 bytes"));
  }
  std::filesystem::remove(path);
}

TEST(ConfigFile, NamesAMissingFileAndASimilarOne) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "config_folder_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "llama.toml") << kValidConfig;

  EXPECT_EQ(load_config((folder / "llama.toml").string()).train.steps, 100);
  for (const auto& [path, tells] : std::vector<std::pair<std::filesystem::path, std::string>>{
           {folder / "lama.toml", "A similar name there is llama.toml"},
           {folder, "is a directory"},
           {folder / "llama.toml" / "x", "no such config file"},
           {"/dev/null", "a device"}}) {
    try {
      load_config(path.string());
      ADD_FAILURE() << path;
    } catch (const tensor::ConfigError& error) {
      EXPECT_THAT(error.what(), testing::StartsWith(path.string() + ": "));
      EXPECT_THAT(error.what(), HasSubstr(tells));
      EXPECT_THAT(error.what(), HasSubstr("Fix: "));
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(ConfigFile, IsRightInEveryExample) {
  int num_configs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TRAINER_SOURCE_DIR "/configs")) {
    const Config config = load_config(entry.path().string());
    EXPECT_EQ(config.run.name, entry.path().stem().string());
    const std::string written = to_toml(config);
    EXPECT_EQ(to_toml(parse_config(written, entry.path().string())), written);
    ++num_configs;
  }
  EXPECT_GE(num_configs, 3);
}

/// Whatever a file holds, reading it ends in a config or in one of our errors.
TEST(ConfigFile, SurvivesRandomDamage) {
  uint64_t state = 1;
  const auto draw = [&](uint64_t below) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 33) % below;
  };
  const std::string pieces = "[]{}=,.\"'\\#\n0b1_eE+-\t\xc3 a";
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text = kValidConfig;
    for (uint64_t edits = 1 + draw(4); edits > 0; --edits) {
      const size_t at = draw(text.size());
      if (draw(3) == 0) {
        text.erase(at, 1 + draw(20));
      } else {
        text.insert(at, 1 + draw(3), pieces[draw(pieces.size())]);
      }
    }
    refusal_of(text);
  }
}

}  // namespace
}  // namespace trainer
