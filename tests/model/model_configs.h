#pragma once
/// Small models of odd sizes. The first three repeat MODELS of scripts/make_model_goldens.py.

#include "model/config.h"

namespace tests {

inline model::ModelConfig small_config() {
  model::ModelConfig config;
  config.vocab_size = 61;
  config.hidden_size = 24;
  config.num_layers = 3;
  config.seq_len = 13;
  return config;
}

/// LayerNorm with biases, learned positions, GELU, one kv head for each head, tied embeddings.
inline model::ModelConfig gpt2_config() {
  model::ModelConfig config = small_config();
  config.num_heads = 3;
  config.ffn_hidden_size = 40;
  config.norm = tensor::NormKind::layer_norm;
  config.activation = tensor::Activation::gelu_tanh;
  config.position = model::Position::learned;
  config.bias = true;
  return config;
}

/// RMSNorm, RoPE, SwiGLU, grouped heads, head_dim * num_heads != hidden_size, a head of its own.
inline model::ModelConfig llama_config() {
  model::ModelConfig config = small_config();
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 10;
  config.ffn_hidden_size = 28;
  config.rope_scaling = {.kind = model::RopeScaling::Kind::llama3, .factor = 4, .original_seq_len = 64};
  config.tie_embeddings = false;
  return config;
}

/// What the other two leave out: qk-norm, partial RoPE under YaRN, one kv head, GEGLU, a sliding window.
inline model::ModelConfig kitchen_sink_config() {
  model::ModelConfig config = small_config();
  config.num_heads = 5;
  config.num_kv_heads = 1;
  config.head_dim = 10;
  config.ffn_hidden_size = 22;
  config.activation = tensor::Activation::geglu;
  config.rope_theta = 500;
  config.rope_fraction = 0.6;
  config.rope_scaling = {
      .kind = model::RopeScaling::Kind::yarn, .factor = 8, .original_seq_len = 64, .beta_fast = 4, .beta_slow = 1};
  config.qk_norm = true;
  config.bias = true;
  config.sliding_window = 5;
  return config;
}

/// The kitchen sink at a size that finite differences can afford.
inline model::ModelConfig tiny_config() {
  model::ModelConfig config = kitchen_sink_config();
  config.vocab_size = 11;
  config.hidden_size = 6;
  config.num_layers = 2;
  config.num_heads = 2;
  config.head_dim = 4;
  config.rope_fraction = 1;
  config.ffn_hidden_size = 5;
  config.seq_len = 7;
  return config;
}

}  // namespace tests
