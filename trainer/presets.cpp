#include "trainer/presets.h"

#include <utility>

namespace trainer {
namespace {

model::ModelConfig gpt2(int64_t num_layers, int64_t hidden_size, int64_t num_heads) {
  model::ModelConfig config;
  config.vocab_size = 50'257;
  config.num_layers = num_layers;
  config.hidden_size = hidden_size;
  config.num_heads = num_heads;
  config.seq_len = 1024;
  config.norm = tensor::NormKind::layer_norm;
  config.activation = tensor::Activation::gelu_tanh;
  config.position = model::Position::learned;
  config.bias = true;
  config.tie_embeddings = true;
  return config;
}

struct LlamaShape {
  int64_t vocab_size, num_layers, hidden_size, num_heads, num_kv_heads, ffn_hidden_size, seq_len;
};

model::ModelConfig llama(const LlamaShape& shape) {
  model::ModelConfig config;
  config.vocab_size = shape.vocab_size;
  config.num_layers = shape.num_layers;
  config.hidden_size = shape.hidden_size;
  config.num_heads = shape.num_heads;
  config.num_kv_heads = shape.num_kv_heads;
  config.ffn_hidden_size = shape.ffn_hidden_size;
  config.seq_len = shape.seq_len;
  config.norm = tensor::NormKind::rms_norm;
  config.activation = tensor::Activation::swiglu;
  config.position = model::Position::rope;
  config.tie_embeddings = false;
  return config;
}

model::ModelConfig llama_3_8b() {
  model::ModelConfig config = llama({.vocab_size = 128'256,
                                     .num_layers = 32,
                                     .hidden_size = 4096,
                                     .num_heads = 32,
                                     .num_kv_heads = 8,
                                     .ffn_hidden_size = 14'336,
                                     .seq_len = 8192});
  config.rope_theta = 500'000;
  return config;
}

model::ModelConfig llama_3_2_1b() {
  model::ModelConfig config = llama({.vocab_size = 128'256,
                                     .num_layers = 16,
                                     .hidden_size = 2048,
                                     .num_heads = 32,
                                     .num_kv_heads = 8,
                                     .ffn_hidden_size = 8192,
                                     .seq_len = 131'072});
  config.rope_theta = 500'000;
  config.rope_scaling = {.kind = model::RopeScaling::Kind::llama3, .factor = 32};
  config.tie_embeddings = true;
  return config;
}

model::ModelConfig tinyllama_1_1b() {
  return llama({.vocab_size = 32'000,
                .num_layers = 22,
                .hidden_size = 2048,
                .num_heads = 32,
                .num_kv_heads = 4,
                .ffn_hidden_size = 5632,
                .seq_len = 2048});
}

std::vector<std::pair<std::string, model::ModelConfig>> presets() {
  return {{"gpt2-124m", gpt2(12, 768, 12)},    {"gpt2-350m", gpt2(24, 1024, 16)}, {"gpt2-774m", gpt2(36, 1280, 20)},
          {"gpt2-1558m", gpt2(48, 1600, 25)},  {"llama-3-8b", llama_3_8b()},      {"llama-3.2-1b", llama_3_2_1b()},
          {"tinyllama-1.1b", tinyllama_1_1b()}};
}

}  // namespace

std::optional<model::ModelConfig> find_preset(const std::string& name) {
  for (const auto& [known, config] : presets())
    if (known == name) return config;
  return std::nullopt;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& preset : presets()) names.push_back(preset.first);
  return names;
}

}  // namespace trainer
