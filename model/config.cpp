#include "model/config.h"

#include <cmath>

namespace model {

int64_t ModelConfig::ffn_size() const {
  if (ffn_hidden_size) return ffn_hidden_size;
  if (!tensor::is_gated(activation)) return 4 * hidden_size;
  return (8 * hidden_size / 3 + 63) / 64 * 64;
}

double ModelConfig::residual_init_std() const { return init_std / std::sqrt(2.0 * static_cast<double>(num_layers)); }

int64_t ModelConfig::rotary_dim() const {
  // The small term: 0.58 * 100 is 57.99... in binary, and must give 58.
  return 2 * static_cast<int64_t>(rope_fraction * static_cast<double>(head_size()) / 2 + 1e-9);
}

}  // namespace model
