#pragma once
/// Final norm, output product and loss, in chunks of tokens: logits exist for one chunk at a time, never for all.
///
/// The gradient of a chunk is made while its logits are at hand, so forward() in training already yields the gradient
/// of the head's input and adds the head weight's: recomputing the logits for a later pass would cost a third more of
/// the head, which is half of a small model.

#include "model/block.h"

namespace model {

enum class Mode { train, evaluate };

class Head {
 public:
  struct Saved {
    tensor::Tensor x, stats;  // input of the final norm
    tensor::Tensor d_normed;  // gradient of its output, made by forward
  };

  /// tied_table: the token embedding when the model ties it, else null and the head owns "head.weight".
  Head(const ModelConfig& config, parallel::Parameter* tied_table, parallel::ParameterStore& store);

  /// x [tokens, hidden] -> sum of the token losses (natural log), in fp64. In training, gradients are those of
  /// batch.grad_scale * that sum.
  double forward(tensor::Ops& ops, tensor::Tensor x, const MicroBatch& batch, Mode mode, Saved& saved) const;
  tensor::Tensor backward_input(tensor::Ops& ops, Saved& saved) const;  ///< -> dx [tokens, hidden]
  void backward_weight(tensor::Ops& ops, Saved& saved) const;

  /// acc [rows, vocab_size] for rows of hidden states, as sampling needs them.
  tensor::Tensor logits(tensor::Ops& ops, const tensor::Tensor& x) const;

 private:
  double forward_chunk(tensor::Ops& ops, const tensor::Tensor& normed, const tensor::Tensor& targets, double grad_scale,
                       Mode mode, tensor::Tensor& d_normed) const;

  NormLayer norm_;
  parallel::Parameter* weight_ = nullptr;  // [vocab_size, hidden]
};

}  // namespace model
