#include "model/attention.h"

#include <algorithm>

#include "model/allocate.h"

namespace model {

using parallel::TensorParallel;
using tensor::Ops;
using tensor::Tensor;
using tensor::Write;

namespace {

LinearSpec qkv_spec(const ModelConfig& config, const std::string& name, const TensorParallel& tensor_parallel) {
  const int64_t q_size = config.num_heads * config.head_size();
  const int64_t kv_size = config.kv_heads() * config.head_size();
  parallel::Communicator* const replicas = &tensor_parallel.kv_replicas;
  return {.in = config.hidden_size,
          .outputs = {{name + ".q", q_size}, {name + ".k", kv_size, replicas}, {name + ".v", kv_size, replicas}},
          .bias = config.bias,
          .init_std = config.init_std};
}

LinearSpec out_spec(const ModelConfig& config, const std::string& name) {
  return {.in = config.num_heads * config.head_size(),
          .outputs = {{name + ".out", config.hidden_size}},
          .bias = config.bias,
          .init_std = config.residual_init_std()};
}

/// qk-norm is RMSNorm over one head, whatever the model's own norm. Every rank normalises its heads.
NormSpec head_norm(const ModelConfig& config, const std::string& name, const TensorParallel& tensor_parallel) {
  return {.name = name,
          .size = config.head_size(),
          .norm = {tensor::NormKind::rms_norm, config.norm_eps},
          .partial_grad = &tensor_parallel.tp,
          .is_primary = tensor_parallel.is_primary()};
}

}  // namespace

AttentionHeads heads_here(const ModelConfig& config, const TensorParallel& tensor_parallel) {
  const int64_t tp = tensor_parallel.tp.size(), kv = config.kv_heads();
  CHECK(config.num_heads % tp == 0 && (kv % tp == 0 || tp % kv == 0), "{} heads and {} kv heads over {} ranks",
        config.num_heads, kv, tp);
  CHECK(tensor_parallel.kv_replicas.size() == std::max<int64_t>(1, tp / kv), "{} ranks hold the same of {} kv heads",
        tensor_parallel.kv_replicas.size(), kv);
  return {.q = config.num_heads / tp, .kv = std::max<int64_t>(1, kv / tp), .head_dim = config.head_size()};
}

Attention::Attention(const ModelConfig& config, const std::string& name, const parallel::LayerGroups& groups,
                     parallel::ParameterStore& store)
    : heads_(heads_here(config, groups.tensor)),
      qkv_(qkv_spec(config, name, groups.tensor), groups.tensor, store),
      q_norm_(config.qk_norm
                  ? std::optional<NormLayer>(std::in_place, head_norm(config, name + ".q_norm", groups.tensor), store)
                  : std::nullopt),
      k_norm_(config.qk_norm
                  ? std::optional<NormLayer>(std::in_place, head_norm(config, name + ".k_norm", groups.tensor), store)
                  : std::nullopt),
      sequence_attention_(make_sequence_attention(heads_, groups.sequence)),
      out_(out_spec(config, name), groups.tensor, store) {}

Tensor Attention::forward(Ops& ops, const Tensor& x, const MicroBatch& batch, const StageContext& context,
                          Saved& saved) const {
  saved.o = sequence_attention_->forward(ops, project(ops, x, batch, context, saved), batch, saved.attention);
  return out_.forward(ops, saved.o, context.tokens);
}

Tensor Attention::backward_input(Ops& ops, Tensor dy, const MicroBatch& batch, const StageContext& context,
                                 Saved& saved) const {
  Tensor d_o = out_.backward_input(ops, dy, context.tokens);
  saved.dy = std::move(dy);
  saved.d_qkv = sequence_attention_->backward(ops, saved.o, d_o, batch, saved.attention);
  d_o = {};
  if (context.rope_table) {
    Tensor dq = heads_.q_of(saved.d_qkv), dk = heads_.k_of(saved.d_qkv);
    ops.rope(dq, batch.positions, context.rope_table, tensor::Transpose::yes);
    ops.rope(dk, batch.positions, context.rope_table, tensor::Transpose::yes);
  }
  if (q_norm_) normalize_qk_backward(ops, saved);

  return qkv_.backward_input(ops, saved.d_qkv, context.tokens);
}

void Attention::backward_weight(Ops& ops, const Tensor& x, const StageContext& context, Saved& saved) const {
  out_.backward_weight(ops, saved.dy, saved.o);
  if (q_norm_) {
    const Tensor &d_normed = saved.d_normed_qk, &raw = saved.raw_qk;
    q_norm_->backward_weight(ops, heads_.q_of(d_normed), heads_.q_of(raw), saved.q_stats);
    k_norm_->backward_weight(ops, heads_.k_of(d_normed), heads_.k_of(raw), saved.k_stats);
  }
  qkv_.backward_weight(ops, saved.d_qkv, x, context.tokens);
}

Tensor Attention::project(Ops& ops, const Tensor& x, const MicroBatch& batch, const StageContext& context,
                          Saved& saved) const {
  Tensor qkv = qkv_.forward(ops, x, context.tokens);
  if (q_norm_) normalize_qk(ops, qkv, saved);
  if (context.rope_table) {
    Tensor q = heads_.q_of(qkv), k = heads_.k_of(qkv);
    ops.rope(q, batch.positions, context.rope_table, tensor::Transpose::no);
    ops.rope(k, batch.positions, context.rope_table, tensor::Transpose::no);
  }
  return qkv;
}

void Attention::normalize_qk(Ops& ops, Tensor& qkv, Saved& saved) const {
  const int64_t tokens = qkv.dim(0);
  saved.raw_qk = activation_like(qkv, {tokens, (heads_.q + heads_.kv) * heads_.head_dim});
  Tensor qk = qkv.columns(0, saved.raw_qk.dim(1));
  ops.device().copy(qk, saved.raw_qk);
  saved.q_stats = statistics_like(qk, {tokens * heads_.q, 2});
  saved.k_stats = statistics_like(qk, {tokens * heads_.kv, 2});
  Tensor q = heads_.q_of(qkv), k = heads_.k_of(qkv);
  q_norm_->forward(ops, heads_.q_of(saved.raw_qk), q, saved.q_stats);
  k_norm_->forward(ops, heads_.k_of(saved.raw_qk), k, saved.k_stats);
}

void Attention::normalize_qk_backward(Ops& ops, Saved& saved) const {
  saved.d_normed_qk = activation_like(saved.d_qkv, saved.raw_qk.shape());
  ops.device().copy(saved.d_qkv.columns(0, saved.raw_qk.dim(1)), saved.d_normed_qk);
  Tensor dq = heads_.q_of(saved.d_qkv), dk = heads_.k_of(saved.d_qkv);
  const Tensor &d_normed = saved.d_normed_qk, &raw = saved.raw_qk;
  q_norm_->backward_input(ops, heads_.q_of(d_normed), heads_.q_of(raw), saved.q_stats, dq, Write::overwrite);
  k_norm_->backward_input(ops, heads_.k_of(d_normed), heads_.k_of(raw), saved.k_stats, dk, Write::overwrite);
}

Tensor Attention::decode(Ops& ops, const Tensor& x, const MicroBatch& batch, const StageContext& context,
                         LayerCache& cache) const {
  Saved scratch;
  const Tensor qkv = project(ops, x, batch, context, scratch);
  const int64_t length = cache.length + x.dim(0);
  Tensor new_k = cache.k.rows(cache.length, length);
  Tensor new_v = cache.v.rows(cache.length, length);
  ops.device().copy(heads_.k_of(qkv), new_k);
  ops.device().copy(heads_.v_of(qkv), new_v);
  cache.length = length;

  Tensor o = activation_like(x, {x.dim(0), heads_.q_width()}), o_heads = heads_.q_of(o);
  Tensor lse = statistics_like(x, {x.dim(0), heads_.q});
  const Tensor key_positions = cache.positions.rows(0, length);
  const tensor::AttentionMask mask{1, batch.positions, batch.first_visible, key_positions};
  ops.attention(heads_.q_of(qkv), cache.k.rows(0, length), cache.v.rows(0, length), mask, heads_.scale(), o_heads, lse);
  return out_.forward(ops, o, context.tokens);
}

}  // namespace model
