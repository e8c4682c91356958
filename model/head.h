#pragma once
/// Final norm, output product and loss, in chunks of tokens: logits exist for one chunk at a time, never for all.
///
/// The gradient of a chunk is made while its logits are at hand, so forward() in training already yields the gradient
/// of the head's input and adds the head weight's: recomputing the logits for a later pass would cost a third more of
/// the head, which is half of a small model.
///
/// Tensor-parallel ranks share the vocabulary out: each makes the logits of its columns, and the softmax is reduced
/// over ranks in two steps (arXiv 1909.08053). Any vocab_size will do, one below the number of ranks too.

#include "model/block.h"

namespace model {

class Head {
 public:
  struct Saved {
    tensor::Tensor x, stats;  // input of the final norm, [tokens held, hidden]
    tensor::Tensor d_normed;  // gradient of its output, made by forward
  };

  /// `table` is registered: the token embedding's when the model ties it, else "head.weight". The final norm joins the
  /// unit that is open.
  Head(const ModelConfig& config, parallel::Parameter& table, const parallel::TensorParallel& tensor_parallel,
       parallel::ParameterStore& store);

  /// x [tokens held, hidden] -> sum of the losses (natural log) of all tokens, in fp64, the same on every rank. In
  /// training, gradients are those of batch.grad_scale * that sum.
  double forward(tensor::Ops& ops, tensor::Tensor x, const MicroBatch& batch, const StageContext& context,
                 Saved& saved) const;
  tensor::Tensor backward_input(tensor::Ops& ops, Saved& saved) const;  ///< -> dx [tokens held, hidden]
  void backward_weight(tensor::Ops& ops, Saved& saved) const;

  /// x [tokens held, hidden] -> acc [tokens, vocab_size], as sampling needs them.
  tensor::Tensor logits(tensor::Ops& ops, const tensor::Tensor& x, const StageContext& context) const;

  parallel::Parameter& table() const { return *table_; }  ///< [vocab_size/tp, hidden]; the embedding's when tied

 private:
  struct Chunk;
  double forward_chunk(tensor::Ops& ops, const Chunk& chunk, Mode mode, tensor::Tensor& d_normed) const;
  void add_table_gradient(tensor::Ops& ops, const tensor::Tensor& dlogits, const tensor::Tensor& normed) const;
  tensor::Tensor without_padding(const tensor::Tensor& table) const;

  NormLayer norm_;
  parallel::Communicator& tp_;
  parallel::Parameter* table_;
};

}  // namespace model
