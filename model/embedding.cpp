#include "model/embedding.h"

#include "model/allocate.h"

namespace model {

using parallel::Initializer;
using parallel::WeightDecay;
using tensor::Ops;
using tensor::Tensor;
using tensor::Write;

parallel::ParameterSpec token_table_spec(const ModelConfig& config, std::string name,
                                         const parallel::Communicator& tp) {
  return {.name = std::move(name),
          .shape = {config.vocab_size, config.hidden_size},
          .init = {Initializer::Kind::normal, config.init_std},
          .weight_decay = WeightDecay::yes,
          .slice = parallel::equal_slice(0, config.vocab_size, tp.rank(), tp.size())};
}

namespace {

void add_gradient(Ops& ops, const Tensor& indices, const Tensor& dy, int64_t first_row, parallel::Parameter& table) {
  Tensor grad = table.grad();
  ops.embedding_backward(indices, dy, first_row, grad, table.next_grad_write());
}

}  // namespace

Embedding::Embedding(const ModelConfig& config, parallel::Parameter& token_table,
                     const parallel::TensorParallel& tensor_parallel, parallel::ParameterStore& store)
    : tp_(tensor_parallel.tp), token_(&token_table) {
  if (config.position != Position::learned) return;
  position_ = &store.add({.name = "embedding.position.weight",
                          .shape = {config.seq_len, config.hidden_size},
                          .init = {Initializer::Kind::normal, config.init_std},
                          .weight_decay = WeightDecay::yes,
                          .slice = {},
                          .is_primary = tensor_parallel.is_primary()});
}

Tensor Embedding::forward(Ops& ops, const MicroBatch& batch, const StageContext& context) const {
  const Tensor table = token_->value();
  Tensor found = activation_like(table, {batch.num_tokens(), table.dim(1)});
  ops.embedding(batch.tokens, table, token_->spec().slice->begin, found, Write::overwrite);
  Tensor y = sum_parts(tp_, std::move(found), context.tokens);
  if (position_) {
    const Tensor positions = held_tokens(tp_, batch.positions, context.tokens);
    ops.embedding(positions, position_->value(), 0, y, Write::accumulate);
  }
  apply_dropout(ops, batch, context, y);
  return y;
}

void Embedding::backward_input(Ops& ops, Tensor dy, const MicroBatch& batch, const StageContext& context,
                               Saved& saved) const {
  apply_dropout(ops, batch, context, dy);
  saved.dy = gather_tokens(tp_, std::move(dy), context.tokens);
}

void Embedding::backward_weight(Ops& ops, const MicroBatch& batch, Saved& saved) const {
  add_gradient(ops, batch.tokens, saved.dy, token_->spec().slice->begin, *token_);
  if (position_) add_gradient(ops, batch.positions, saved.dy, 0, *position_);
  saved = {};
}

void Embedding::apply_dropout(Ops& ops, const MicroBatch& batch, const StageContext& context, Tensor& x) const {
  if (context.dropout == 0) return;
  const tensor::Dropout dropout = {
      .probability = context.dropout, .seed = context.dropout_seed, .step = batch.step, .site = 0};
  const Tensor no_residual;
  ops.dropout_add(dropout, x, no_residual, held_tokens(tp_, batch.token_index, context.tokens), x);
}

}  // namespace model
