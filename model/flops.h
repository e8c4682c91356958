#pragma once
/// Floating-point operations of training, and from them MFU.
///
/// Per token, forward + backward, with N = weights that take part in a matrix product (linears and the head, once
/// when tied, and of experts those that a token takes; not embeddings, norms, biases), A = heads * head_dim, T = mean
/// number of keys a query sees:
///   model FLOPs = 6 N + 12 * num_layers * A * T
/// With causal attention over whole sequences T = (seq_len + 1) / 2, so the second term is the familiar
/// 6 * num_layers * seq_len * A. Norms, activations and softmax are not counted, nor is recomputation.
///   MFU = model FLOPs * tokens per second / peak FLOP/s of the ranks

#include "model/config.h"

namespace model {

int64_t parameter_count(const ModelConfig& config);         ///< all weights of the model
int64_t matmul_parameter_count(const ModelConfig& config);  ///< N above

struct FlopsPerToken {
  double causal = 0;          ///< attention counted over visible keys: what MFU uses
  double full_attention = 0;  ///< attention counted over all seq_len keys, as some publications do
};
FlopsPerToken flops_per_token(const ModelConfig& config);
double layer_flops_per_token(const ModelConfig& config, int64_t layer);  ///< a layer's part of `causal`

}  // namespace model
