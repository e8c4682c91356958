#pragma once
/// Ring attention (arXiv 2310.01889): keys and values go round the ranks, block after block, while each rank computes
/// on the block that it has. Blocks join by their log-sum-exp, in the accumulator's dtype.

#include "model/sequence_attention.h"

namespace model {

class RingAttention final : public SequenceAttention {
 public:
  RingAttention(const AttentionHeads& heads, parallel::Communicator& sp) : heads_(heads), sp_(sp) {}

  tensor::Tensor forward(tensor::Ops& ops, tensor::Tensor qkv, const MicroBatch& batch, Saved& saved) const override;
  /// Keys and values go round again, and the gradients of each block with them: the ranks after its own add their
  /// shares in order, and its own rank, where they arrive last, adds its own. The global log-sum-exp makes the
  /// gradients of a block those of the whole.
  tensor::Tensor backward(tensor::Ops& ops, const tensor::Tensor& o, const tensor::Tensor& d_o, const MicroBatch& batch,
                          Saved& saved) const override;

 private:
  AttentionHeads heads_;
  parallel::Communicator& sp_;
};

}  // namespace model
