#include "model/embedding.h"

#include "model/allocate.h"

namespace model {

using parallel::Initializer;
using parallel::WeightDecay;
using tensor::Ops;
using tensor::Tensor;
using tensor::Write;

Embedding::Embedding(const ModelConfig& config, parallel::ParameterStore& store) {
  const auto add_table = [&](const std::string& name, int64_t rows) {
    return &store.add({.name = name,
                       .shape = {rows, config.hidden_size},
                       .init = {Initializer::Kind::normal, config.init_std},
                       .weight_decay = WeightDecay::yes});
  };
  token_ = add_table("embedding.token.weight", config.vocab_size);
  if (config.position == Position::learned) position_ = add_table("embedding.position.weight", config.seq_len);
}

Tensor Embedding::forward(Ops& ops, const MicroBatch& batch, const StageContext& context) const {
  const Tensor& table = token_->value();
  Tensor y = activation_like(table, {batch.num_tokens(), table.dim(1)});
  ops.embedding(batch.tokens, table, 0, y, Write::overwrite);
  if (position_) ops.embedding(batch.positions, position_->value(), 0, y, Write::accumulate);
  const Tensor no_residual;
  if (context.dropout > 0) ops.dropout_add(dropout(batch, context), y, no_residual, batch.token_index, y);
  return y;
}

void Embedding::backward_input(Ops& ops, Tensor dy, const MicroBatch& batch, const StageContext& context,
                               Saved& saved) const {
  const Tensor no_residual;
  if (context.dropout > 0) ops.dropout_add(dropout(batch, context), dy, no_residual, batch.token_index, dy);
  saved.dy = std::move(dy);
}

void Embedding::backward_weight(Ops& ops, const MicroBatch& batch, Saved& saved) const {
  ops.embedding_backward(batch.tokens, saved.dy, 0, token_->grad(), token_->next_grad_write());
  if (position_) {
    ops.embedding_backward(batch.positions, saved.dy, 0, position_->grad(), position_->next_grad_write());
  }
  saved = {};
}

tensor::Dropout Embedding::dropout(const MicroBatch& batch, const StageContext& context) const {
  return {.probability = context.dropout, .seed = context.dropout_seed, .step = batch.step, .site = 0};
}

}  // namespace model
