#pragma once
/// Token embedding, plus learned positions where the model has them, plus dropout.

#include "model/block.h"

namespace model {

class Embedding {
 public:
  struct Saved {
    tensor::Tensor dy;  // from backward_input, for backward_weight
  };

  Embedding(const ModelConfig& config, parallel::ParameterStore& store);

  /// -> [tokens, hidden]
  tensor::Tensor forward(tensor::Ops& ops, const MicroBatch& batch, const StageContext& context) const;
  /// Tokens have no gradient: keeps dy for backward_weight.
  void backward_input(tensor::Ops& ops, tensor::Tensor dy, const MicroBatch& batch, const StageContext& context,
                      Saved& saved) const;
  void backward_weight(tensor::Ops& ops, const MicroBatch& batch, Saved& saved) const;

  parallel::Parameter& token_table() const { return *token_; }  ///< [vocab_size, hidden]; the head's too when tied

 private:
  tensor::Dropout dropout(const MicroBatch& batch, const StageContext& context) const;

  parallel::Parameter* token_ = nullptr;
  parallel::Parameter* position_ = nullptr;  // [seq_len, hidden]; null: not learned
};

}  // namespace model
