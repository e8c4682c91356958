#include "model/flops.h"

#include <algorithm>

namespace model {

namespace {

int64_t attention_width(const ModelConfig& config) { return config.num_heads * config.head_size(); }
int64_t kv_width(const ModelConfig& config) { return config.kv_heads() * config.head_size(); }

int64_t ffn_weights(const ModelConfig& config, int64_t ffn_size) {
  return (is_gated(config.activation) ? 3 : 2) * config.hidden_size * ffn_size;
}

int64_t ffn_biases(const ModelConfig& config, int64_t ffn_size) {
  if (!config.bias || ffn_size == 0) return 0;
  return ffn_size * (is_gated(config.activation) ? 2 : 1) + config.hidden_size;  // (gate,) up, down
}

/// Weights of products, of which an expert counts `of_experts` times.
int64_t matmul_parameters(const ModelConfig& config, int64_t layer, int64_t of_experts) {
  const int64_t attention = config.hidden_size * (2 * attention_width(config) + 2 * kv_width(config));
  if (!config.has_experts(layer)) return attention + ffn_weights(config, config.ffn_size());
  const int64_t router = config.hidden_size * config.moe.num_experts;
  return attention + router + of_experts * ffn_weights(config, config.expert_ffn_size()) +
         ffn_weights(config, config.moe.shared_ffn_hidden_size);
}

int64_t ffn_vectors(const ModelConfig& config, int64_t layer) {
  if (!config.has_experts(layer)) return ffn_biases(config, config.ffn_size());
  return config.moe.num_experts * ffn_biases(config, config.expert_ffn_size()) +
         ffn_biases(config, config.moe.shared_ffn_hidden_size) +
         (config.moe.balance == Balance::bias ? config.moe.num_experts : 0);
}

int64_t vector_parameters(const ModelConfig& config, int64_t layer) {
  const bool norm_bias = config.bias && config.norm == tensor::NormKind::layer_norm;
  int64_t count = 2 * config.hidden_size * (norm_bias ? 2 : 1);
  if (config.qk_norm) count += 2 * config.head_size();
  if (config.bias) count += attention_width(config) + 2 * kv_width(config) + config.hidden_size;  // q, k, v, out
  return count + ffn_vectors(config, layer);
}

/// Keys that a query sees, averaged over a sequence without document boundaries.
double mean_visible_keys(const ModelConfig& config) {
  const auto seq_len = static_cast<double>(config.seq_len);
  if (config.sliding_window == 0 || config.sliding_window >= config.seq_len) return (seq_len + 1) / 2;
  const auto window = static_cast<double>(config.sliding_window);
  return (window * (window + 1) / 2 + (seq_len - window) * window) / seq_len;
}

}  // namespace

int64_t matmul_parameter_count(const ModelConfig& config) {
  int64_t count = config.vocab_size * config.hidden_size;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    count += matmul_parameters(config, layer, config.moe.top_k);
  }
  return count;
}

int64_t parameter_count(const ModelConfig& config) {
  const bool norm_bias = config.bias && config.norm == tensor::NormKind::layer_norm;
  int64_t count = config.vocab_size * config.hidden_size;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    count += matmul_parameters(config, layer, config.moe.num_experts) + vector_parameters(config, layer);
  }
  count += config.hidden_size * (norm_bias ? 2 : 1);  // final norm
  if (!config.tie_embeddings) count += config.vocab_size * config.hidden_size;
  if (config.position == Position::learned) count += config.seq_len * config.hidden_size;
  return count;
}

double layer_flops_per_token(const ModelConfig& config, int64_t layer) {
  return 6.0 * static_cast<double>(matmul_parameters(config, layer, config.moe.top_k)) +
         12.0 * static_cast<double>(attention_width(config)) * mean_visible_keys(config);
}

FlopsPerToken flops_per_token(const ModelConfig& config) {
  const double products = 6.0 * static_cast<double>(matmul_parameter_count(config));
  const double per_key = 12.0 * static_cast<double>(config.num_layers * attention_width(config));
  return {.causal = products + per_key * mean_visible_keys(config),
          .full_attention = products + per_key * static_cast<double>(config.seq_len)};
}

}  // namespace model
