#pragma once
/// Table [model] of a run config: the shape of a decoder-only transformer.

#include <cstdint>
#include <optional>
#include <string>

#include "tensor/ops.h"

namespace model {

enum class Position { learned, rope, none };

/// Longer contexts than the model was trained on, by changing RoPE's frequencies.
struct RopeScaling {
  enum class Kind { none, linear, llama3, yarn };
  Kind kind = Kind::none;
  double factor = 1;                     ///< new context / original context
  int64_t original_seq_len = 8192;       ///< llama3, yarn: context before scaling
  double low_freq_factor = 1;            ///< llama3: wavelengths longer than original / low are divided by factor
  double high_freq_factor = 4;           ///< llama3: wavelengths shorter than original / high are kept
  double beta_fast = 32, beta_slow = 1;  ///< yarn (arXiv 2309.00071): rotations that bound the ramp
  double attention_factor = 0;           ///< yarn: scale of cos and sin; 0: 0.1 ln(factor) + 1
};

enum class Recompute { none, selective, full };

struct ModelConfig {
  int64_t vocab_size = 0;  ///< required
  int64_t num_layers = 12;
  int64_t hidden_size = 768;
  int64_t num_heads = 12;
  int64_t num_kv_heads = 0;     ///< 0: num_heads (MHA); 1: MQA; between: GQA
  int64_t head_dim = 0;         ///< 0: hidden_size / num_heads
  int64_t ffn_hidden_size = 0;  ///< 0: 4 * hidden_size; gated: 8/3 of it, rounded up to a multiple of 64
  int64_t seq_len = 1024;       ///< tokens of a training sequence, and the largest learned position
  tensor::NormKind norm = tensor::NormKind::rms_norm;
  double norm_eps = 1e-5;
  tensor::Activation activation = tensor::Activation::swiglu;
  Position position = Position::rope;
  double rope_theta = 10'000;
  double rope_fraction = 1;  ///< share of head_dim that rotates (partial RoPE)
  RopeScaling rope_scaling;
  bool qk_norm = false;        ///< RMSNorm over each head of q and k, before RoPE
  bool bias = false;           ///< in linears and LayerNorm
  bool tie_embeddings = true;  ///< the head is the token embedding
  double dropout = 0;          ///< on the embedding and on each residual branch
  int64_t sliding_window = 0;  ///< a query sees this many last tokens, itself included; 0: all
  double init_std = 0.02;      ///< of matrices; projections into the residual: init_std / sqrt(2 num_layers)

  // Sizes after the "0 means" rules above.
  int64_t kv_heads() const { return num_kv_heads ? num_kv_heads : num_heads; }
  int64_t head_size() const { return head_dim ? head_dim : hidden_size / num_heads; }
  int64_t ffn_size() const;
  double residual_init_std() const;
  int64_t rotary_dim() const;  ///< even
};

}  // namespace model
