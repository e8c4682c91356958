#include "model/all_gather_attention.h"

#include "model/allocate.h"

namespace model {

using tensor::Ops;
using tensor::Tensor;

namespace {

Tensor in_dtype(Ops& ops, tensor::Dtype dtype, Tensor x) {
  if (x.dtype() == dtype) return x;
  Tensor y = x.device().allocate(x.shape(), dtype, tensor::MemoryCategory::activations);
  ops.cast(x, y);
  return y;
}

}  // namespace

/// [tokens of whole sequences, k | v], in sequence.
Tensor AllGatherAttention::gathered(const Tensor& qkv, const MicroBatch& batch) const {
  const int64_t tokens = qkv.dim(0);
  Tensor by_rank = activation_like(qkv, {sp_.size() * tokens, heads_.kv_width()});
  Tensor own = by_rank.rows(sp_.rank() * tokens, (sp_.rank() + 1) * tokens);
  qkv.device().copy(heads_.kv_columns(qkv), own);
  sp_.all_gather(own, by_rank).wait();
  return parallel::by_rank_to_in_sequence(by_rank, batch.num_sequences, sp_.size());
}

Tensor AllGatherAttention::forward(Ops& ops, Tensor qkv, const MicroBatch& batch, Saved& saved) const {
  const int64_t tokens = qkv.dim(0);
  const AttentionHeads keys = keys_alone(heads_);
  const Tensor kv = gathered(qkv, batch);
  Tensor o = activation_like(qkv, {tokens, heads_.q_width()}), o_heads = heads_.q_of(o);
  saved.lse = statistics_like(qkv, {tokens, heads_.q});
  saved.qkv = std::move(qkv);
  ops.attention(heads_.q_of(saved.qkv), keys.k_of(kv), keys.v_of(kv), batch.mask(batch.whole.positions), heads_.scale(),
                o_heads, saved.lse);
  return o;
}

Tensor AllGatherAttention::backward(Ops& ops, const Tensor& o, const Tensor& d_o, const MicroBatch& batch,
                                    Saved& saved) const {
  const AttentionHeads keys = keys_alone(heads_);
  Tensor d_qkv = activation_like(d_o, saved.qkv.shape()), dq = heads_.q_of(d_qkv);
  Tensor d_kv;  // of this rank's queries, for the keys of all tokens
  {
    const Tensor kv = gathered(saved.qkv, batch);
    d_kv = activation_like(kv, kv.shape());
    Tensor dk = keys.k_of(d_kv), dv = keys.v_of(d_kv);
    ops.attention_backward(heads_.q_of(saved.qkv), keys.k_of(kv), keys.v_of(kv), heads_.q_of(o), saved.lse,
                           heads_.q_of(d_o), batch.mask(batch.whole.positions), heads_.scale(), dq, dk, dv);
  }
  saved = {};
  const Tensor shares = in_dtype(ops, accumulator_of(d_kv.dtype()),
                                 parallel::in_sequence_to_by_rank(d_kv, batch.num_sequences, sp_.size()));
  Tensor sum = activation_like(shares, {d_qkv.dim(0), heads_.kv_width()}), own = heads_.kv_columns(d_qkv);
  sp_.reduce_scatter(shares, sum).wait();
  ops.device().copy(in_dtype(ops, d_qkv.dtype(), std::move(sum)), own);
  return d_qkv;
}

}  // namespace model
