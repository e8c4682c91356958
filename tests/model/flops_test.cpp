/// Counted parameters and FLOPs against built models and published figures.

#include "model/flops.h"

#include "tests/model/moe_models.h"
#include "tests/model/test_model.h"

namespace tests {

using model::ModelConfig;
using tensor::Activation;
using tensor::NormKind;

namespace {

int64_t built_parameter_count(const ModelConfig& config) {
  const AloneGroups alone;
  parallel::ParameterStore store({}, alone.data_parallel);
  const model::Stage stage(config, model::whole_model(config), {}, alone.groups(), store);
  return store.stored_numel();
}

ModelConfig gpt2_124m(int64_t vocab_size, int64_t seq_len) {
  ModelConfig config;  // 12 layers of 768
  config.vocab_size = vocab_size;
  config.seq_len = seq_len;
  config.norm = NormKind::layer_norm;
  config.activation = Activation::gelu_tanh;
  config.position = model::Position::learned;
  config.bias = true;
  return config;
}

struct LlamaSizes {
  int64_t vocab_size, num_layers, hidden_size, num_heads, num_kv_heads, ffn_hidden_size;
};

ModelConfig llama(const LlamaSizes& sizes) {
  ModelConfig config;
  config.vocab_size = sizes.vocab_size;
  config.num_layers = sizes.num_layers;
  config.hidden_size = sizes.hidden_size;
  config.num_heads = sizes.num_heads;
  config.num_kv_heads = sizes.num_kv_heads;
  config.ffn_hidden_size = sizes.ffn_hidden_size;
  config.tie_embeddings = false;
  return config;
}

/// Every combination of what changes the set of parameters.
std::vector<ModelConfig> many_shapes() {
  std::vector<ModelConfig> shapes;
  for (int bits = 0; bits < 128; ++bits) {
    ModelConfig config = small_config();
    config.num_heads = 4;
    config.num_kv_heads = bits & 1 ? 2 : 0;
    config.head_dim = bits & 2 ? 10 : 0;
    config.norm = bits & 4 ? NormKind::layer_norm : NormKind::rms_norm;
    config.activation = bits & 8 ? Activation::swiglu : Activation::relu_squared;
    config.qk_norm = bits & 16;
    config.bias = bits & 32;
    config.tie_embeddings = bits & 64;
    config.position = bits % 3 == 0 ? model::Position::learned : model::Position::rope;
    shapes.push_back(config);
  }
  return shapes;
}

}  // namespace

TEST(ParameterCount, IsThatOfTheBuiltModel) {
  for (const ModelConfig& config : many_shapes())
    EXPECT_EQ(model::parameter_count(config), built_parameter_count(config));
}

TEST(ParameterCount, IsThatOfTheBuiltModelWithExperts) {
  for (const ModelConfig& config : {softmax_moe(), sigmoid_moe(), dropping_moe(), dense_moe()})
    EXPECT_EQ(model::parameter_count(config), built_parameter_count(config));
}

TEST(ParameterCount, IsThePublishedOneOfExperts) {
  ModelConfig mixtral = llama({32'000, 32, 4096, 32, 8, 14'336});
  mixtral.moe.num_experts = 8;

  EXPECT_EQ(model::parameter_count(mixtral), 46'702'792'704);
  EXPECT_NEAR(static_cast<double>(model::matmul_parameter_count(mixtral)) * 1e-9, 12.9 - 0.13, 0.05)
      << "12.9 billion are active, the embedding's 0.13 among them";
}

TEST(ParameterCount, IsThePublishedOne) {
  const ModelConfig llama_3_8b = llama({128'256, 32, 4096, 32, 8, 14'336});
  const ModelConfig tiny_llama = llama({32'000, 22, 2048, 32, 4, 5632});
  ModelConfig llama_32_1b = llama({128'256, 16, 2048, 32, 8, 8192});
  llama_32_1b.tie_embeddings = true;

  EXPECT_EQ(model::parameter_count(gpt2_124m(50'257, 1024)), 124'439'808);
  EXPECT_EQ(model::parameter_count(llama_3_8b), 8'030'261'248);
  EXPECT_EQ(model::parameter_count(tiny_llama), 1'100'048'384);
  EXPECT_EQ(model::parameter_count(llama_32_1b), 1'235'814'400);
}

TEST(FlopsPerToken, OfGpt2AreTheKnownOnes) {
  // In millions: 6 N + 12 * layers * width * seq_len, and half the second term for causal attention.
  const model::FlopsPerToken flops = model::flops_per_token(gpt2_124m(50'304, 256));

  EXPECT_NEAR(flops.full_attention * 1e-6, 770, 0.5);
  EXPECT_NEAR(flops.causal * 1e-6, 756, 0.5);
  EXPECT_NEAR(model::flops_per_token(gpt2_124m(50'304, 64)).full_attention * 1e-6, 748.5, 0.05);
}

TEST(FlopsPerToken, OfASmallModelAreTheKnownOnes) {
  ModelConfig config = gpt2_124m(50'304, 256);
  config.num_layers = 6;
  config.hidden_size = 384;
  config.num_heads = 6;

  EXPECT_NEAR(model::flops_per_token(config).full_attention * 1e-6, 186.7, 0.05);
  EXPECT_NEAR(model::flops_per_token(config).causal * 1e-6, 183, 0.3);
}

TEST(FlopsPerToken, AreThoseOfItsLayersAndTheHead) {
  for (const ModelConfig& config : {llama_config(), sigmoid_moe()}) {
    double sum = 6.0 * static_cast<double>(config.vocab_size * config.hidden_size);
    for (int64_t i = 0; i < config.num_layers; ++i) sum += model::layer_flops_per_token(config, i);

    EXPECT_DOUBLE_EQ(model::flops_per_token(config).causal, sum);
  }
}

TEST(FlopsPerToken, CountTheVisibleKeysOfAWindow) {
  ModelConfig config = llama_config();  // seq_len 13
  const double products = 6.0 * static_cast<double>(model::matmul_parameter_count(config));
  const double per_key = 12.0 * 3 * 40;

  EXPECT_DOUBLE_EQ(model::flops_per_token(config).causal, products + per_key * 7);
  config.sliding_window = 5;  // 1 + 2 + 3 + 4 + 9 * 5 keys over 13 queries
  EXPECT_DOUBLE_EQ(model::flops_per_token(config).causal, products + per_key * 55 / 13);
  config.sliding_window = 99;
  EXPECT_DOUBLE_EQ(model::flops_per_token(config).causal, products + per_key * 7);
}

TEST(FfnSize, FollowsTheActivationWhereItIsNotGiven) {
  ModelConfig config;
  config.hidden_size = 768;
  config.activation = Activation::gelu_tanh;
  EXPECT_EQ(config.ffn_size(), 3072);
  config.activation = Activation::swiglu;
  EXPECT_EQ(config.ffn_size(), 2048);
  config.hidden_size = 800;
  EXPECT_EQ(config.ffn_size(), 2176);  // 2133.3 rounded up to a multiple of 64
}

}  // namespace tests
