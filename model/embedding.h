#pragma once
/// Token embedding, plus learned positions where the model has them, plus dropout. The token table is cut into rows
/// over the tensor-parallel ranks; of each token, one rank finds the row.

#include "model/block.h"

namespace model {

/// A table of one row per token, cut over ranks: the embedding's, and the head's where it has its own.
parallel::ParameterSpec token_table_spec(const ModelConfig& config, std::string name, const parallel::Communicator& tp);
constexpr const char* kTokenTable = "embedding.token.weight";

class Embedding {
 public:
  struct Saved {
    tensor::Tensor dy;  // [tokens, hidden], from backward_input, for backward_weight
  };

  /// `token_table` is registered; learned positions join the unit that is open.
  Embedding(const ModelConfig& config, parallel::Parameter& token_table,
            const parallel::TensorParallel& tensor_parallel, parallel::ParameterStore& store);

  /// -> [tokens held, hidden]
  tensor::Tensor forward(tensor::Ops& ops, const MicroBatch& batch, const StageContext& context) const;
  /// Tokens have no gradient: keeps dy [tokens held, hidden] for backward_weight.
  void backward_input(tensor::Ops& ops, tensor::Tensor dy, const MicroBatch& batch, const StageContext& context,
                      Saved& saved) const;
  void backward_weight(tensor::Ops& ops, const MicroBatch& batch, Saved& saved) const;

 private:
  // In place; its own gradient too.
  void apply_dropout(tensor::Ops& ops, const MicroBatch& batch, const StageContext& context, tensor::Tensor& x) const;

  parallel::Communicator& tp_;
  parallel::Parameter* token_;               // [vocab_size/tp, hidden]; the head's too when tied
  parallel::Parameter* position_ = nullptr;  // [seq_len, hidden], the same on every rank; null: not learned
};

}  // namespace model
