#include "trainer/presets.h"

#include "tests/trainer/config_samples.h"

namespace trainer {
namespace {

const std::string kAroundModel = "[train]\nsteps = 1\n[data]\ntrain = \"a.bin\"\n[model]\n";

TEST(Preset, IsAUsableModelUnderEveryName) {
  for (const std::string& name : preset_names()) {
    const Config config = parse_config(kAroundModel + "preset = \"" + name + "\"\n", "test.toml");
    EXPECT_EQ(config.model.hidden_size % config.model.num_heads, 0) << name;
    EXPECT_GT(config.model.vocab_size, 0) << name;
  }
}

TEST(Preset, HasThePublishedShape) {
  const auto gpt2 = find_preset("gpt2-1558m").value();
  EXPECT_EQ(gpt2.num_layers, 48);
  EXPECT_EQ(gpt2.hidden_size, 1600);
  EXPECT_EQ(gpt2.num_heads, 25);
  EXPECT_EQ(gpt2.position, model::Position::learned);
  EXPECT_TRUE(gpt2.bias);

  const auto llama = find_preset("llama-3-8b").value();
  EXPECT_EQ(llama.num_kv_heads, 8);
  EXPECT_EQ(llama.ffn_hidden_size, 14'336);
  EXPECT_EQ(llama.rope_theta, 500'000);
  EXPECT_FALSE(llama.tie_embeddings);

  const auto small = find_preset("llama-3.2-1b").value();
  EXPECT_EQ(small.head_size(), 64);
  EXPECT_EQ(small.rope_scaling.kind, model::RopeScaling::Kind::llama3);
  EXPECT_EQ(small.rope_scaling.factor, 32);
  EXPECT_TRUE(small.tie_embeddings);
}

TEST(Preset, GivesWayToTheOtherKeys) {
  const Config config =
      parse_config(kAroundModel + "num_layers = 3\npreset = \"gpt2-124m\"\nvocab_size = 300\n", "test.toml");

  EXPECT_EQ(config.model.num_layers, 3);
  EXPECT_EQ(config.model.vocab_size, 300);
  EXPECT_EQ(config.model.hidden_size, 768);
}

TEST(Preset, IsResolvedInTheWrittenConfig) {
  const Config config = parse_config(kAroundModel + "preset = \"llama-3.2-1b\"\n", "test.toml");
  const std::string written = to_toml(config);

  EXPECT_EQ(written.find("preset"), std::string::npos);
  EXPECT_EQ(to_toml(parse_config(written, "test.toml")), written);
}

TEST(Preset, IsUnknownUnderOtherNames) { EXPECT_FALSE(find_preset("gpt5").has_value()); }

}  // namespace
}  // namespace trainer
