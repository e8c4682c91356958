#include "model/stage.h"

#include "model/allocate.h"
#include "model/rope.h"

namespace model {

using tensor::Ops;
using tensor::Tensor;

StageSpan whole_model(const ModelConfig& config) { return {.first_layer = 0, .last_layer = config.num_layers}; }

Stage::Stage(const ModelConfig& config, const StageSpan& span, const StageOptions& options,
             parallel::ParameterStore& store)
    : config_(config) {
  training_.dropout = config.dropout;
  training_.dropout_seed = options.seed;
  training_.recompute = options.recompute;
  if (span.has_embedding) {
    store.begin_unit("embedding");
    embedding_.emplace(config, store);
  }
  for (int64_t layer = span.first_layer; layer < span.last_layer; ++layer) {
    store.begin_unit("layers." + std::to_string(layer));
    blocks_.emplace_back(config, layer, store);
  }
  if (span.has_head) {
    store.begin_unit("head");
    head_.emplace(config, config.tie_embeddings ? &embedding_->token_table() : nullptr, store);
  }
}

void Stage::prepare(tensor::Device& device, tensor::Dtype dtype) {
  if (config_.position != Position::rope) return;
  training_.rope_table = make_rope_table(config_, config_.seq_len, dtype, device);
  inference_.rope_table = training_.rope_table.view();
}

Tensor Stage::forward(Ops& ops, const MicroBatch& batch, Tensor hidden, Saved& saved) const {
  if (embedding_) hidden = embedding_->forward(ops, batch, training_);
  saved.blocks.resize(blocks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    hidden = blocks_[i].forward(ops, std::move(hidden), batch, training_, saved.blocks[i]);
  }
  if (head_) saved.loss = head_->forward(ops, std::move(hidden), batch, Mode::train, saved.head);
  return hidden;
}

Tensor Stage::backward_input(Ops& ops, const MicroBatch& batch, Tensor d_hidden, Saved& saved) const {
  if (head_) d_hidden = head_->backward_input(ops, saved.head);
  for (size_t i = blocks_.size(); i-- > 0;) {
    d_hidden = blocks_[i].backward_input(ops, std::move(d_hidden), batch, training_, saved.blocks[i]);
  }
  if (embedding_) embedding_->backward_input(ops, std::move(d_hidden), batch, training_, saved.embedding);
  return d_hidden;
}

void Stage::backward_weight(Ops& ops, const MicroBatch& batch, Saved& saved) const {
  if (head_) head_->backward_weight(ops, saved.head);
  for (size_t i = blocks_.size(); i-- > 0;) blocks_[i].backward_weight(ops, saved.blocks[i]);
  if (embedding_) embedding_->backward_weight(ops, batch, saved.embedding);
}

Tensor Stage::backward(Ops& ops, const MicroBatch& batch, Tensor d_hidden, Saved& saved) const {
  if (head_) {
    d_hidden = head_->backward_input(ops, saved.head);
    head_->backward_weight(ops, saved.head);
  }
  for (size_t i = blocks_.size(); i-- > 0;) {
    d_hidden = blocks_[i].backward_input(ops, std::move(d_hidden), batch, training_, saved.blocks[i]);
    blocks_[i].backward_weight(ops, saved.blocks[i]);
  }
  if (embedding_) {
    embedding_->backward_input(ops, std::move(d_hidden), batch, training_, saved.embedding);
    embedding_->backward_weight(ops, batch, saved.embedding);
  }
  return d_hidden;
}

Tensor Stage::forward_hidden(Ops& ops, const MicroBatch& batch, const StageContext& context) const {
  CHECK(embedding_ && head_, "only a whole model is evaluated");
  Tensor hidden = embedding_->forward(ops, batch, context);
  for (const Block& block : blocks_) {
    Block::Saved scratch;
    hidden = block.forward(ops, std::move(hidden), batch, context, scratch);
  }
  return hidden;
}

double Stage::evaluate(Ops& ops, const MicroBatch& batch) const {
  Head::Saved scratch;
  return head_->forward(ops, forward_hidden(ops, batch, inference_), batch, Mode::evaluate, scratch);
}

Tensor Stage::logits(Ops& ops, const MicroBatch& batch) const {
  return head_->logits(ops, forward_hidden(ops, batch, inference_));
}

Tensor Stage::decode(Ops& ops, const MicroBatch& batch, KvCache& cache) const {
  CHECK(embedding_ && head_, "only a whole model decodes");
  const int64_t length = cache.length + batch.num_tokens();
  CHECK(length <= config_.seq_len || config_.position == Position::none, "token {} is beyond the {} positions known",
        length, config_.seq_len);
  Tensor hidden = embedding_->forward(ops, batch, inference_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    hidden = blocks_[i].decode(ops, hidden, batch, inference_, cache.layers[i]);
  }
  cache.length = length;
  return head_->logits(ops, hidden.rows(hidden.dim(0) - 1, hidden.dim(0)));
}

}  // namespace model
