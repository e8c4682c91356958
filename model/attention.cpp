#include "model/attention.h"

#include <algorithm>
#include <cmath>

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

HeadsHere heads_here(const ModelConfig& config, const TensorParallel& tensor_parallel) {
  const int64_t tp = tensor_parallel.tp.size(), kv = config.kv_heads();
  CHECK(config.num_heads % tp == 0 && (kv % tp == 0 || tp % kv == 0), "{} heads and {} kv heads over {} ranks",
        config.num_heads, kv, tp);
  CHECK(tensor_parallel.kv_replicas.size() == std::max<int64_t>(1, tp / kv), "{} ranks hold the same of {} kv heads",
        tensor_parallel.kv_replicas.size(), kv);
  return {.q = config.num_heads / tp, .kv = std::max<int64_t>(1, kv / tp)};
}

Attention::Attention(const ModelConfig& config, const std::string& name, const parallel::LayerGroups& groups,
                     parallel::ParameterStore& store)
    : num_heads_(heads_here(config, groups.tensor).q),
      num_kv_heads_(heads_here(config, groups.tensor).kv),
      head_dim_(config.head_size()),
      qkv_(qkv_spec(config, name, groups.tensor), groups.tensor, store),
      q_norm_(config.qk_norm
                  ? std::optional<NormLayer>(std::in_place, head_norm(config, name + ".q_norm", groups.tensor), store)
                  : std::nullopt),
      k_norm_(config.qk_norm
                  ? std::optional<NormLayer>(std::in_place, head_norm(config, name + ".k_norm", groups.tensor), store)
                  : std::nullopt),
      out_(out_spec(config, name), groups.tensor, store) {}

Tensor Attention::heads_of(const Tensor& fused, int64_t first_head, int64_t num_heads) const {
  const Tensor columns = fused.columns(first_head * head_dim_, (first_head + num_heads) * head_dim_);
  return columns.reshaped({fused.dim(0), num_heads, head_dim_});
}

Tensor Attention::q_of(const Tensor& fused) const { return heads_of(fused, 0, num_heads_); }
Tensor Attention::k_of(const Tensor& fused) const { return heads_of(fused, num_heads_, num_kv_heads_); }
Tensor Attention::v_of(const Tensor& fused) const { return heads_of(fused, num_heads_ + num_kv_heads_, num_kv_heads_); }

double Attention::scale() const { return 1.0 / std::sqrt(static_cast<double>(head_dim_)); }

Tensor Attention::forward(Ops& ops, const Tensor& x, const MicroBatch& batch, const StageContext& context,
                          Saved& saved) const {
  project(ops, x, batch, context, saved);
  const int64_t tokens = saved.qkv.dim(0);
  saved.o = activation_like(x, {tokens, num_heads_ * head_dim_});
  saved.lse = statistics_like(x, {tokens, num_heads_});
  Tensor o = saved.o.reshaped({tokens, num_heads_, head_dim_});
  ops.attention(q_of(saved.qkv), k_of(saved.qkv), v_of(saved.qkv), batch.mask(), scale(), o, saved.lse);
  return out_.forward(ops, saved.o, context.tokens);
}

Tensor Attention::backward_input(Ops& ops, Tensor dy, const MicroBatch& batch, const StageContext& context,
                                 Saved& saved) const {
  Tensor d_o = out_.backward_input(ops, dy, context.tokens);
  saved.dy = std::move(dy);

  const int64_t tokens = d_o.dim(0);
  saved.d_qkv = activation_like(d_o, saved.qkv.shape());
  Tensor dq = q_of(saved.d_qkv), dk = k_of(saved.d_qkv), dv = v_of(saved.d_qkv);
  ops.attention_backward(q_of(saved.qkv), k_of(saved.qkv), v_of(saved.qkv),
                         saved.o.reshaped({tokens, num_heads_, head_dim_}), saved.lse,
                         d_o.reshaped({tokens, num_heads_, head_dim_}), batch.mask(), scale(), dq, dk, dv);
  d_o = {};
  saved.qkv = {};
  saved.lse = {};
  if (context.rope_table) {
    ops.rope(dq, batch.positions, context.rope_table, tensor::Transpose::yes);
    ops.rope(dk, batch.positions, context.rope_table, tensor::Transpose::yes);
  }
  if (q_norm_) normalize_qk_backward(ops, saved);

  return qkv_.backward_input(ops, saved.d_qkv, context.tokens);
}

void Attention::backward_weight(Ops& ops, const Tensor& x, const StageContext& context, Saved& saved) const {
  out_.backward_weight(ops, saved.dy, saved.o);
  if (q_norm_) {
    q_norm_->backward_weight(ops, q_of(saved.d_normed_qk), q_of(saved.raw_qk), saved.q_stats);
    k_norm_->backward_weight(ops, k_of(saved.d_normed_qk), k_of(saved.raw_qk), saved.k_stats);
  }
  qkv_.backward_weight(ops, saved.d_qkv, x, context.tokens);
}

void Attention::project(Ops& ops, const Tensor& x, const MicroBatch& batch, const StageContext& context,
                        Saved& saved) const {
  saved.qkv = qkv_.forward(ops, x, context.tokens);
  if (q_norm_) normalize_qk(ops, saved);
  if (context.rope_table) {
    Tensor q = q_of(saved.qkv), k = k_of(saved.qkv);
    ops.rope(q, batch.positions, context.rope_table, tensor::Transpose::no);
    ops.rope(k, batch.positions, context.rope_table, tensor::Transpose::no);
  }
}

void Attention::normalize_qk(Ops& ops, Saved& saved) const {
  const int64_t tokens = saved.qkv.dim(0);
  saved.raw_qk = activation_like(saved.qkv, {tokens, (num_heads_ + num_kv_heads_) * head_dim_});
  Tensor qk = saved.qkv.columns(0, saved.raw_qk.dim(1));
  ops.device().copy(qk, saved.raw_qk);
  saved.q_stats = statistics_like(qk, {tokens * num_heads_, 2});
  saved.k_stats = statistics_like(qk, {tokens * num_kv_heads_, 2});
  Tensor q = q_of(saved.qkv), k = k_of(saved.qkv);
  q_norm_->forward(ops, q_of(saved.raw_qk), q, saved.q_stats);
  k_norm_->forward(ops, k_of(saved.raw_qk), k, saved.k_stats);
}

void Attention::normalize_qk_backward(Ops& ops, Saved& saved) const {
  saved.d_normed_qk = activation_like(saved.d_qkv, saved.raw_qk.shape());
  ops.device().copy(saved.d_qkv.columns(0, saved.raw_qk.dim(1)), saved.d_normed_qk);
  Tensor dq = q_of(saved.d_qkv), dk = k_of(saved.d_qkv);
  q_norm_->backward_input(ops, q_of(saved.d_normed_qk), q_of(saved.raw_qk), saved.q_stats, dq, Write::overwrite);
  k_norm_->backward_input(ops, k_of(saved.d_normed_qk), k_of(saved.raw_qk), saved.k_stats, dk, Write::overwrite);
}

Tensor Attention::decode(Ops& ops, const Tensor& x, const MicroBatch& batch, const StageContext& context,
                         LayerCache& cache) const {
  Saved scratch;
  project(ops, x, batch, context, scratch);
  const int64_t length = cache.length + x.dim(0);
  Tensor new_k = cache.k.rows(cache.length, length);
  Tensor new_v = cache.v.rows(cache.length, length);
  ops.device().copy(k_of(scratch.qkv), new_k);
  ops.device().copy(v_of(scratch.qkv), new_v);
  cache.length = length;

  Tensor o = activation_like(x, {x.dim(0), num_heads_, head_dim_});
  Tensor lse = statistics_like(x, {x.dim(0), num_heads_});
  const Tensor key_positions = cache.positions.rows(0, length);
  const tensor::AttentionMask mask{1, batch.positions, batch.first_visible, key_positions};
  ops.attention(q_of(scratch.qkv), cache.k.rows(0, length), cache.v.rows(0, length), mask, scale(), o, lse);
  return out_.forward(ops, o.reshaped({x.dim(0), num_heads_ * head_dim_}), context.tokens);
}

}  // namespace model
