#pragma once
/// Causal self-attention with grouped heads: qkv product, optional qk-norm, RoPE, attention, output product.

#include <optional>

#include "model/kv_cache.h"
#include "model/linear.h"
#include "model/micro_batch.h"
#include "model/norm_layer.h"

namespace model {

class Attention {
 public:
  /// What a micro-batch keeps between its passes. backward_input frees qkv and lse.
  struct Saved {
    tensor::Tensor qkv;               // [tokens, (heads + 2 kv_heads) * head_dim], after qk-norm and RoPE
    tensor::Tensor raw_qk;            // [tokens, (heads + kv_heads) * head_dim], before qk-norm; only with it
    tensor::Tensor q_stats, k_stats;  // acc [tokens * heads, 2], only with qk-norm
    tensor::Tensor o, lse;            // o [tokens, heads * head_dim]; lse acc [tokens, heads]
    tensor::Tensor dy, d_qkv;         // from backward_input, for backward_weight
    tensor::Tensor d_normed_qk;       // gradient of the outputs of qk-norm, only with it
  };

  Attention(const ModelConfig& config, const std::string& name, parallel::ParameterStore& store);

  /// x [tokens, hidden] (normed) -> y [tokens, hidden]. rope_table may be absent (no RoPE).
  tensor::Tensor forward(tensor::Ops& ops, const tensor::Tensor& x, const MicroBatch& batch,
                         const tensor::Tensor& rope_table, Saved& saved) const;
  tensor::Tensor backward_input(tensor::Ops& ops, tensor::Tensor dy, const MicroBatch& batch,
                                const tensor::Tensor& rope_table, Saved& saved) const;
  /// x is the input of forward.
  void backward_weight(tensor::Ops& ops, const tensor::Tensor& x, Saved& saved) const;

  /// Forward of new tokens of one sequence, whose keys and values join the cache. x [new tokens, hidden].
  tensor::Tensor decode(tensor::Ops& ops, const tensor::Tensor& x, const MicroBatch& batch,
                        const tensor::Tensor& rope_table, LayerCache& cache) const;

 private:
  // Views [tokens, heads, head_dim] of the columns of a fused tensor [tokens, q | k | v] (or [tokens, q | k]).
  tensor::Tensor q_of(const tensor::Tensor& fused) const;
  tensor::Tensor k_of(const tensor::Tensor& fused) const;
  tensor::Tensor v_of(const tensor::Tensor& fused) const;
  tensor::Tensor heads_of(const tensor::Tensor& fused, int64_t first_head, int64_t num_heads) const;
  void project(tensor::Ops& ops, const tensor::Tensor& x, const MicroBatch& batch, const tensor::Tensor& rope_table,
               Saved& saved) const;
  void normalize_qk(tensor::Ops& ops, Saved& saved) const;
  void normalize_qk_backward(tensor::Ops& ops, Saved& saved) const;
  double scale() const;

  int64_t num_heads_, num_kv_heads_, head_dim_;
  Linear qkv_;
  std::optional<NormLayer> q_norm_, k_norm_;
  Linear out_;
};

}  // namespace model
