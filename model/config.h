#pragma once
/// Table [model] of a run config: the shape of a decoder-only transformer.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

/// Which layers have experts. Of every n-th, the last of each n.
struct MoeLayers {
  enum class Kind { all, every, after };
  Kind kind = Kind::all;
  int64_t n = 1;
};
/// "all", "every:2" (each second layer), "after:1" (all but the first). Nothing: it is none of these.
std::optional<MoeLayers> parse_moe_layers(std::string_view text);

/// How tokens are kept from crowding at few experts. aux: a loss of every sequence (arXiv 2101.03961), whose gradient
/// goes to the router. bias: no loss; a bias on the choice moves after each step (arXiv 2408.15664).
enum class Balance { none, aux, bias };

/// Table [model.moe]: layers whose feed-forward part is many experts, of which each token takes a few.
struct MoeConfig {
  int64_t num_experts = 0;             ///< 0: no layer has experts
  int64_t top_k = 2;                   ///< experts that a token takes
  int64_t ffn_hidden_size = 0;         ///< of an expert; 0: model.ffn_hidden_size
  int64_t shared_ffn_hidden_size = 0;  ///< of the expert that every token takes besides; 0: none
  tensor::RouterScore router = tensor::RouterScore::softmax;
  bool normalize_top_k = true;  ///< the weights of a token's experts add up to routed_scaling
  double routed_scaling = 1;
  int64_t num_groups = 1;    ///< experts lie in so many groups of neighbours
  int64_t top_k_groups = 1;  ///< a token takes experts of its best groups only
  Balance balance = Balance::aux;
  double aux_loss_coef = 0.01;
  double z_loss_coef = 0;          ///< of the mean of (log sum exp of a router's logits)^2 (arXiv 2202.08906)
  double bias_update_rate = 1e-3;  ///< of balance = bias, per step
  double capacity_factor =
      0;  ///< an expert takes this many times its even share of a training sequence; 0: every token
  std::string layers = "all";  ///< which have experts: parse_moe_layers
};

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
  MoeConfig moe;

  // Sizes after the "0 means" rules above.
  int64_t kv_heads() const { return num_kv_heads ? num_kv_heads : num_heads; }
  int64_t head_size() const { return head_dim ? head_dim : hidden_size / num_heads; }
  int64_t ffn_size() const;
  int64_t expert_ffn_size() const { return moe.ffn_hidden_size ? moe.ffn_hidden_size : ffn_size(); }
  bool has_experts(int64_t layer) const;
  int64_t num_moe_layers() const;
  double residual_init_std() const;
  int64_t rotary_dim() const;  ///< even
};

}  // namespace model
