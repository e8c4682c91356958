#include "model/flops.h"

#include <algorithm>

namespace model {

namespace {

int64_t attention_width(const ModelConfig& config) { return config.num_heads * config.head_size(); }
int64_t kv_width(const ModelConfig& config) { return config.kv_heads() * config.head_size(); }

int64_t matmul_parameters_per_layer(const ModelConfig& config) {
  const int64_t attention = config.hidden_size * (2 * attention_width(config) + 2 * kv_width(config));
  const int64_t products = is_gated(config.activation) ? 3 : 2;
  return attention + products * config.hidden_size * config.ffn_size();
}

int64_t vector_parameters_per_layer(const ModelConfig& config) {
  const bool norm_bias = config.bias && config.norm == tensor::NormKind::layer_norm;
  int64_t count = 2 * config.hidden_size * (norm_bias ? 2 : 1);
  if (config.qk_norm) count += 2 * config.head_size();
  if (config.bias) {
    count += attention_width(config) + 2 * kv_width(config) + config.hidden_size;             // q, k, v, out
    count += config.ffn_size() * (is_gated(config.activation) ? 2 : 1) + config.hidden_size;  // (gate,) up, down
  }
  return count;
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
  return config.num_layers * matmul_parameters_per_layer(config) + config.vocab_size * config.hidden_size;
}

int64_t parameter_count(const ModelConfig& config) {
  const bool norm_bias = config.bias && config.norm == tensor::NormKind::layer_norm;
  int64_t count = matmul_parameter_count(config) + config.num_layers * vector_parameters_per_layer(config);
  count += config.hidden_size * (norm_bias ? 2 : 1);  // final norm
  if (!config.tie_embeddings) count += config.vocab_size * config.hidden_size;
  if (config.position == Position::learned) count += config.seq_len * config.hidden_size;
  return count;
}

FlopsPerToken flops_per_token(const ModelConfig& config) {
  const double products = 6.0 * static_cast<double>(matmul_parameter_count(config));
  const double per_key = 12.0 * static_cast<double>(config.num_layers * attention_width(config));
  return {.causal = products + per_key * mean_visible_keys(config),
          .full_attention = products + per_key * static_cast<double>(config.seq_len)};
}

}  // namespace model
