#pragma once
/// Every rank gathers the keys and values of all tokens, and attends with the queries of its own.

#include "model/sequence_attention.h"

namespace model {

class AllGatherAttention final : public SequenceAttention {
 public:
  AllGatherAttention(const AttentionHeads& heads, parallel::Communicator& sp) : heads_(heads), sp_(sp) {}

  tensor::Tensor forward(tensor::Ops& ops, tensor::Tensor qkv, const MicroBatch& batch, Saved& saved) const override;
  /// Gathers again: keeping the keys of all tokens would cost what the split saves.
  tensor::Tensor backward(tensor::Ops& ops, const tensor::Tensor& o, const tensor::Tensor& d_o, const MicroBatch& batch,
                          Saved& saved) const override;

 private:
  tensor::Tensor gathered(const tensor::Tensor& qkv, const MicroBatch& batch) const;

  AttentionHeads heads_;
  parallel::Communicator& sp_;
};

}  // namespace model
