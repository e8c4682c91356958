#include "model/sequence_attention.h"

#include "model/all_gather_attention.h"
#include "model/allocate.h"
#include "model/ring_attention.h"
#include "model/ulysses_attention.h"

namespace model {

using tensor::Ops;
using tensor::Tensor;

namespace {

class PlainAttention final : public SequenceAttention {
 public:
  explicit PlainAttention(const AttentionHeads& heads) : heads_(heads) {}

  Tensor forward(Ops& ops, Tensor qkv, const MicroBatch& batch, Saved& saved) const override {
    const int64_t tokens = qkv.dim(0);
    Tensor o = activation_like(qkv, {tokens, heads_.q_width()});
    saved.lse = statistics_like(qkv, {tokens, heads_.q});
    saved.qkv = std::move(qkv);
    Tensor o_heads = heads_.q_of(o);
    ops.attention(heads_.q_of(saved.qkv), heads_.k_of(saved.qkv), heads_.v_of(saved.qkv), batch.mask(), heads_.scale(),
                  o_heads, saved.lse);
    return o;
  }

  Tensor backward(Ops& ops, const Tensor& o, const Tensor& d_o, const MicroBatch& batch, Saved& saved) const override {
    Tensor d_qkv = activation_like(d_o, saved.qkv.shape());
    Tensor dq = heads_.q_of(d_qkv), dk = heads_.k_of(d_qkv), dv = heads_.v_of(d_qkv);
    ops.attention_backward(heads_.q_of(saved.qkv), heads_.k_of(saved.qkv), heads_.v_of(saved.qkv), heads_.q_of(o),
                           saved.lse, heads_.q_of(d_o), batch.mask(), heads_.scale(), dq, dk, dv);
    saved = {};
    return d_qkv;
  }

 private:
  AttentionHeads heads_;
};

}  // namespace

std::unique_ptr<SequenceAttention> make_sequence_attention(const AttentionHeads& heads,
                                                           const parallel::SequenceParallel& sequence) {
  using parallel::SpMethod;
  if (sequence.sp.size() == 1) return std::make_unique<PlainAttention>(heads);
  switch (sequence.method) {
    case SpMethod::ring:
      return std::make_unique<RingAttention>(heads, sequence.sp);
    case SpMethod::ulysses:
      return std::make_unique<UlyssesAttention>(heads, sequence.sp);
    case SpMethod::all_gather:
      return std::make_unique<AllGatherAttention>(heads, sequence.sp);
  }
  CHECK(false, "method {} exists", static_cast<int>(sequence.method));
  return nullptr;
}

}  // namespace model
