#pragma once
/// Causal self-attention with grouped heads: qkv product, optional qk-norm, RoPE, attention, output product. Heads are
/// shared out over the tensor-parallel ranks, tokens over the sequence-parallel ones: how these see each other's keys
/// is SequenceAttention's.

#include <memory>
#include <optional>

#include "model/kv_cache.h"
#include "model/linear.h"
#include "model/micro_batch.h"
#include "model/norm_layer.h"
#include "model/sequence_attention.h"
#include "model/stage_context.h"
#include "parallel/layer_groups.h"

namespace model {

/// Heads of one tensor-parallel rank. Ranks that read the same kv head hold copies of it.
AttentionHeads heads_here(const ModelConfig& config, const parallel::TensorParallel& tensor_parallel);

class Attention {
 public:
  /// What a micro-batch keeps between its passes, of this rank's heads. backward_input frees what attention kept.
  struct Saved {
    SequenceAttention::Saved attention;
    tensor::Tensor raw_qk;            // [tokens, (heads + kv_heads) * head_dim], before qk-norm; only with it
    tensor::Tensor q_stats, k_stats;  // acc [tokens * heads, 2], only with qk-norm
    tensor::Tensor o;                 // [tokens, heads * head_dim]
    tensor::Tensor dy, d_qkv;         // from backward_input, for backward_weight
    tensor::Tensor d_normed_qk;       // gradient of the outputs of qk-norm, only with it
  };

  Attention(const ModelConfig& config, const std::string& name, const parallel::LayerGroups& groups,
            parallel::ParameterStore& store);

  /// x [tokens held, hidden] (normed) -> y [tokens held, hidden]
  tensor::Tensor forward(tensor::Ops& ops, const tensor::Tensor& x, const MicroBatch& batch,
                         const StageContext& context, Saved& saved) const;
  tensor::Tensor backward_input(tensor::Ops& ops, tensor::Tensor dy, const MicroBatch& batch,
                                const StageContext& context, Saved& saved) const;
  /// x is the input of forward.
  void backward_weight(tensor::Ops& ops, const tensor::Tensor& x, const StageContext& context, Saved& saved) const;

  /// Forward of new tokens of one sequence, whose keys and values join the cache. x [new tokens, hidden].
  tensor::Tensor decode(tensor::Ops& ops, const tensor::Tensor& x, const MicroBatch& batch, const StageContext& context,
                        LayerCache& cache) const;

 private:
  /// -> [tokens, q | k | v], after qk-norm and RoPE
  tensor::Tensor project(tensor::Ops& ops, const tensor::Tensor& x, const MicroBatch& batch,
                         const StageContext& context, Saved& saved) const;
  void normalize_qk(tensor::Ops& ops, tensor::Tensor& qkv, Saved& saved) const;
  void normalize_qk_backward(tensor::Ops& ops, Saved& saved) const;

  AttentionHeads heads_;  // of this rank
  ColumnParallelLinear qkv_;
  std::optional<NormLayer> q_norm_, k_norm_;
  std::unique_ptr<SequenceAttention> sequence_attention_;
  RowParallelLinear out_;
};

}  // namespace model
