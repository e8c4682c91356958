#pragma once
/// Attention of this rank's tokens over whole sequences, parts of which other sequence-parallel ranks hold. All methods
/// give what one rank would give, whatever the mask; they differ in what they send. Per layer and micro-batch, for a
/// group of `size` ranks, with Q, O and KV the bytes of this rank's tokens:
///
///                forward                          backward
///   ring         (size - 1) sends of KV           the same, and (size - 1) sends of dKV in the accumulator's dtype
///   ulysses      2 all_to_all: Q + KV, O          2 all_to_all: O, Q + KV
///   all_gather   all_gather of size * KV          all_gather again; reduce_scatter of size * dKV in that dtype
///
/// Ulysses (arXiv 2309.14509) needs a head for every rank. Where there are fewer kv heads than ranks, several ranks get
/// a copy of one, and its KV is sent to each.

#include <memory>

#include "model/attention_heads.h"
#include "model/micro_batch.h"
#include "parallel/layer_groups.h"

namespace model {

class SequenceAttention {
 public:
  /// What a micro-batch keeps from forward to backward; whose tokens and heads that is depends on the method.
  struct Saved {
    tensor::Tensor qkv;  ///< [tokens, q | k | v]
    tensor::Tensor o;    ///< absent where it is forward's result
    tensor::Tensor lse;  ///< acc [tokens, heads]
  };

  virtual ~SequenceAttention() = default;

  /// qkv [tokens, q | k | v] of this rank's tokens -> o [tokens, heads * head_dim]
  virtual tensor::Tensor forward(tensor::Ops& ops, tensor::Tensor qkv, const MicroBatch& batch, Saved& saved) const = 0;
  /// Of forward's result o and its gradient -> d_qkv. Frees what was saved.
  virtual tensor::Tensor backward(tensor::Ops& ops, const tensor::Tensor& o, const tensor::Tensor& d_o,
                                  const MicroBatch& batch, Saved& saved) const = 0;
};

/// The one place that chooses: by the method, or plain attention where a rank holds whole sequences.
std::unique_ptr<SequenceAttention> make_sequence_attention(const AttentionHeads& heads,
                                                           const parallel::SequenceParallel& sequence);

}  // namespace model
