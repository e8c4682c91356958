#include "model/ring_attention.h"

#include "model/allocate.h"

namespace model {

using parallel::Communicator;
using parallel::Handle;
using tensor::Ops;
using tensor::Tensor;

namespace {

int next_rank(const Communicator& sp) { return (sp.rank() + 1) % sp.size(); }
int previous_rank(const Communicator& sp) { return (sp.rank() + sp.size() - 1) % sp.size(); }

Tensor packed(const Tensor& x) {
  Tensor copy = activation_like(x, x.shape());
  x.device().copy(x, copy);
  return copy;
}

/// x in the accumulator's dtype: x itself, or a copy.
Tensor accumulating(Ops& ops, const Tensor& x) {
  if (x.dtype() == accumulator_of(x.dtype())) return x.view();
  Tensor sum = statistics_like(x, x.shape());
  ops.cast(x, sum);
  return sum;
}

/// Keys and values on their way: at step i, those of rank (rank - i).
class KeyValueRing {
 public:
  KeyValueRing(Communicator& sp, Tensor own) : sp_(sp), current_(std::move(own)) {}

  int step() const { return step_; }
  bool is_done() const { return step_ == sp_.size(); }
  int source() const { return (sp_.rank() - step_ + sp_.size()) % sp_.size(); }
  const Tensor& current() const { return current_; }  ///< [tokens, k | v]

  /// The block sets out for the next rank, and may be read meanwhile. None leaves at the last step.
  void pass_on() {
    if (step_ + 1 == sp_.size()) return;
    next_ = activation_like(current_, current_.shape());
    received_ = sp_.receive(next_, previous_rank(sp_));
    sent_ = sp_.send(current_, next_rank(sp_));
  }
  void advance() {
    received_.wait();
    sent_.wait();
    current_ = std::move(next_);
    ++step_;
  }

 private:
  Communicator& sp_;
  int step_ = 0;
  Tensor current_, next_;
  Handle received_, sent_;  // end before the tensors do
};

/// Gradients of keys and values that follow their block, acc [tokens, dk | dv].
class GradientRing {
 public:
  explicit GradientRing(Communicator& sp) : sp_(sp) {}

  /// Adds this rank's share to what ranks before it gathered for a block, and sends it on.
  void add(Ops& ops, const Tensor& share) {
    Tensor sum = is_first_ ? packed(share) : arrived();
    if (!is_first_) ops.add(sum, share, sum);
    is_first_ = false;
    sent_.wait();
    leaving_ = std::move(sum);
    arriving_ = activation_like(leaving_, leaving_.shape());
    received_ = sp_.receive(arriving_, previous_rank(sp_));
    sent_ = sp_.send(leaving_, next_rank(sp_));
  }

  /// What the other ranks gathered for the last block asked for; after the last step, this rank's own.
  Tensor arrived() {
    received_.wait();
    return std::move(arriving_);
  }

 private:
  Communicator& sp_;
  bool is_first_ = true;
  Tensor leaving_, arriving_;
  Handle received_, sent_;
};

}  // namespace

Tensor RingAttention::forward(Ops& ops, Tensor qkv, const MicroBatch& batch, Saved& saved) const {
  const int64_t tokens = qkv.dim(0);
  Tensor o = activation_like(qkv, {tokens, heads_.q_width()}), o_heads = heads_.q_of(o);
  saved.lse = statistics_like(qkv, {tokens, heads_.q});
  saved.qkv = std::move(qkv);
  const AttentionHeads keys = keys_alone(heads_);
  KeyValueRing ring(sp_, packed(heads_.kv_columns(saved.qkv)));
  const auto attend = [&](Tensor& block_o, Tensor& block_lse) {
    const Tensor positions = batch.positions_of_rank(ring.source());
    ops.attention(heads_.q_of(saved.qkv), keys.k_of(ring.current()), keys.v_of(ring.current()), batch.mask(positions),
                  heads_.scale(), block_o, block_lse);
  };

  ring.pass_on();
  attend(o_heads, saved.lse);
  ring.advance();
  Tensor sum = accumulating(ops, o_heads);
  Tensor block_o = activation_like(o, o_heads.shape()), block_lse = statistics_like(o, saved.lse.shape());
  for (; !ring.is_done(); ring.advance()) {
    ring.pass_on();
    attend(block_o, block_lse);
    ops.merge_attention(block_o, block_lse, sum, saved.lse);
  }
  if (sum.dtype() != o.dtype()) ops.cast(sum, o_heads);
  return o;
}

Tensor RingAttention::backward(Ops& ops, const Tensor& o, const Tensor& d_o, const MicroBatch& batch,
                               Saved& saved) const {
  const AttentionHeads keys = keys_alone(heads_);
  KeyValueRing ring(sp_, packed(heads_.kv_columns(saved.qkv)));
  const auto differentiate = [&](const Tensor& d_block) {
    const Tensor positions = batch.positions_of_rank(ring.source());
    Tensor dq = heads_.q_of(d_block), dk = heads_.k_of(d_block), dv = heads_.v_of(d_block);
    ops.attention_backward(heads_.q_of(saved.qkv), keys.k_of(ring.current()), keys.v_of(ring.current()), heads_.q_of(o),
                           saved.lse, heads_.q_of(d_o), batch.mask(positions), heads_.scale(), dq, dk, dv);
  };

  Tensor d_qkv = activation_like(d_o, saved.qkv.shape());
  ring.pass_on();
  differentiate(d_qkv);
  ring.advance();
  Tensor sum = accumulating(ops, d_qkv);  // dq of all blocks so far; dk and dv of the own one
  Tensor dq_sum = heads_.q_columns(sum), dkv_sum = heads_.kv_columns(sum);
  const Tensor d_block = activation_like(d_qkv, d_qkv.shape());
  GradientRing gradients(sp_);
  for (; !ring.is_done(); ring.advance()) {
    ring.pass_on();
    differentiate(d_block);
    const Tensor share = accumulating(ops, d_block);
    ops.add(dq_sum, heads_.q_columns(share), dq_sum);
    gradients.add(ops, heads_.kv_columns(share));
  }
  ops.add(dkv_sum, gradients.arrived(), dkv_sum);
  if (sum.dtype() != d_qkv.dtype()) ops.cast(sum, d_qkv);
  saved = {};
  return d_qkv;
}

}  // namespace model
