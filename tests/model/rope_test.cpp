/// RoPE's frequencies against values of an independent implementation: ROPE_INIT_FUNCTIONS of Hugging Face transformers
/// 5.24 (modeling_rope_utils.py), run in float64.

#include "model/rope.h"

#include <cmath>

#include "tests/support/tensors.h"

namespace tests {

using model::RopeScaling;

namespace {

model::ModelConfig config_of(int64_t head_dim, double theta, const RopeScaling& scaling) {
  model::ModelConfig config;
  config.head_dim = head_dim;
  config.rope_theta = theta;
  config.rope_scaling = scaling;
  return config;
}

void expect_frequencies(const model::ModelConfig& config, const std::map<size_t, double>& expected) {
  const std::vector<double> frequencies = model::rope_frequencies(config);
  for (const auto& [pair, frequency] : expected) {
    EXPECT_NEAR(frequencies.at(pair), frequency, 1e-14 * frequency) << "pair " << pair;
  }
}

}  // namespace

TEST(RopeFrequencies, AreDividedByLinearScaling) {
  const auto config = config_of(128, 10'000, {.kind = RopeScaling::Kind::linear, .factor = 4});

  EXPECT_EQ(model::rope_frequencies(config).size(), 64u);
  expect_frequencies(
      config,
      {{0, 0.25}, {1, 0.21649108084001634}, {9, 0.06846049085660903}, {32, 0.0025}, {63, 2.8869549617236455e-05}});
}

TEST(RopeFrequencies, AreThoseOfLlama31) {
  expect_frequencies(
      config_of(128, 500'000, {.kind = RopeScaling::Kind::llama3, .factor = 8, .original_seq_len = 8192}),
      {{0, 1.0},
       {1, 0.8146172338565447},
       {9, 0.15797280990904317},
       {28, 0.0032114459947525913},
       {31, 0.0008567514129196321},  // the blend
       {32, 0.0005248461609929547},
       {36, 7.78465527393245e-05},
       {63, 3.068925988914511e-07}});
}

TEST(RopeFrequencies, AreThoseOfYarn) {
  expect_frequencies(config_of(128, 1e6, {.kind = RopeScaling::Kind::yarn, .factor = 4, .original_seq_len = 32768}),
                     {{0, 1.0},
                      {20, 0.01333521432163324},
                      {24, 0.005375321490790102},  // the ramp
                      {28, 0.001848276564706878},
                      {32, 0.0006029411764705882},
                      {36, 0.00017984115587395423},
                      {40, 4.445698525097307e-05},
                      {63, 3.102344401879299e-07}});
}

TEST(RopeFrequencies, OfPartialYarnCoverTheRotatedFeaturesOnly) {
  auto config = config_of(80, 10'000, {.kind = RopeScaling::Kind::yarn, .factor = 4, .original_seq_len = 2048});
  config.rope_fraction = 0.4;

  EXPECT_EQ(config.rotary_dim(), 32);
  EXPECT_EQ(model::rope_frequencies(config).size(), 16u);
  expect_frequencies(config, {{0, 1.0},
                              {4, 0.1},
                              {5, 0.05020904689199546},
                              {8, 0.005714285714285714},
                              {11, 0.00044456985250973074},
                              {15, 4.445698525097307e-05}});
}

TEST(RotaryDim, IsEvenAndRoundsDownExactly) {
  model::ModelConfig config;
  config.head_dim = 100;
  for (const auto& [fraction, expected] : std::map<double, int64_t>{{1, 100}, {0.58, 58}, {0.57, 56}, {0.25, 24}}) {
    config.rope_fraction = fraction;
    EXPECT_EQ(config.rotary_dim(), expected) << fraction;
  }
}

TEST(RopeAttentionFactor, IsOneButForYarn) {
  EXPECT_EQ(model::rope_attention_factor({.kind = RopeScaling::Kind::llama3, .factor = 8}), 1);
  EXPECT_NEAR(model::rope_attention_factor({.kind = RopeScaling::Kind::yarn, .factor = 4}), 1.138629436111989, 1e-15);
  EXPECT_EQ(model::rope_attention_factor({.kind = RopeScaling::Kind::yarn, .factor = 1}), 1);
  EXPECT_EQ(model::rope_attention_factor({.kind = RopeScaling::Kind::yarn, .factor = 4, .attention_factor = 1.5}), 1.5);
}

class RopeTable : public CpuTest {};

TEST_F(RopeTable, HoldsScaledCosinesThenSines) {
  auto config = config_of(4, 100, {.kind = RopeScaling::Kind::yarn, .attention_factor = 2});

  const tensor::Tensor table = model::make_rope_table(config, 3, tensor::Dtype::bf16, device_);

  EXPECT_EQ(table.dtype(), tensor::Dtype::fp32);
  const Values row = values_of(table.rows(2, 3));
  const Values expected{2 * std::cos(2.0), 2 * std::cos(0.2), 2 * std::sin(2.0), 2 * std::sin(0.2)};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(row.at(i), expected[i], 2 * epsilon(tensor::Dtype::fp32));
}

}  // namespace tests
