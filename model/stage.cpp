#include "model/stage.h"

#include "model/allocate.h"
#include "model/rope.h"

namespace model {

using parallel::TensorParallel;
using tensor::Ops;
using tensor::Tensor;

StageSpan whole_model(const ModelConfig& config) { return {.first_layer = 0, .last_layer = config.num_layers}; }

Stage::Stage(const ModelConfig& config, const StageSpan& span, const StageOptions& options,
             const TensorParallel& tensor_parallel, parallel::ParameterStore& store)
    : config_(config), tensor_parallel_(tensor_parallel), store_(store) {
  training_.mode = Mode::train;
  training_.dropout = config.dropout;
  training_.dropout_seed = options.seed;
  training_.recompute = options.recompute;
  training_.tokens = evaluation_.tokens = tensor_parallel.tokens;

  const auto begin_unit = [&](const std::string& name) {
    store.begin_unit(name);
    return store.units().back().get();
  };
  if (span.has_embedding) {
    embedding_unit_ = begin_unit("embedding");
    embedding_.emplace(config, tensor_parallel, store);
  }
  for (int64_t layer = span.first_layer; layer < span.last_layer; ++layer) {
    block_units_.push_back(begin_unit("layers." + std::to_string(layer)));
    blocks_.emplace_back(config, layer, tensor_parallel, store);
  }
  if (span.has_head) {
    head_unit_ = begin_unit("head");
    head_.emplace(config, config.tie_embeddings ? &embedding_->token_table() : nullptr, tensor_parallel, store);
  }
}

void Stage::prepare(tensor::Device& device, tensor::Dtype dtype) {
  if (config_.position != Position::rope) return;
  training_.rope_table = make_rope_table(config_, config_.seq_len, dtype, device);
  evaluation_.rope_table = training_.rope_table.view();
  decoding_.rope_table = training_.rope_table.view();
}

// ---- training -------------------------------------------------------------------------------------------------------

Tensor Stage::forward(Ops& ops, const MicroBatch& batch, Tensor hidden, Saved& saved) const {
  if (embedding_) hidden = embed(ops, batch, training_);
  saved.blocks.resize(blocks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Use in_use = use_in_forward(i);
    hidden = blocks_[i].forward(ops, std::move(hidden), batch, training_, saved.blocks[i]);
  }
  if (head_) saved.loss = head_loss(ops, std::move(hidden), batch, training_, saved);
  return hidden;
}

Tensor Stage::backward_input(Ops& ops, const MicroBatch& batch, Tensor d_hidden, Saved& saved) const {
  if (head_) d_hidden = head_->backward_input(ops, saved.head);
  for (size_t i = blocks_.size(); i-- > 0;) {
    const Use in_use = use_in_backward(i);
    d_hidden = blocks_[i].backward_input(ops, std::move(d_hidden), batch, training_, saved.blocks[i]);
  }
  if (embedding_) embedding_->backward_input(ops, std::move(d_hidden), batch, training_, saved.embedding);
  return d_hidden;
}

void Stage::backward_weight(Ops& ops, const MicroBatch& batch, Saved& saved) const {
  if (head_) finish_head(ops, saved);
  for (size_t i = blocks_.size(); i-- > 0;) {
    {
      const Use in_use = use_in_backward(i);  // selective recompute makes the outputs of norms again
      blocks_[i].backward_weight(ops, training_, saved.blocks[i]);
    }
    store_.gradients_complete(*block_units_[i]);
  }
  if (embedding_) finish_embedding(ops, batch, saved);
}

Tensor Stage::backward(Ops& ops, const MicroBatch& batch, Tensor d_hidden, Saved& saved) const {
  if (head_) {
    d_hidden = head_->backward_input(ops, saved.head);
    finish_head(ops, saved);
  }
  for (size_t i = blocks_.size(); i-- > 0;) {
    {
      const Use in_use = use_in_backward(i);
      d_hidden = blocks_[i].backward_input(ops, std::move(d_hidden), batch, training_, saved.blocks[i]);
      blocks_[i].backward_weight(ops, training_, saved.blocks[i]);
    }
    store_.gradients_complete(*block_units_[i]);
  }
  if (embedding_) {
    embedding_->backward_input(ops, std::move(d_hidden), batch, training_, saved.embedding);
    finish_embedding(ops, batch, saved);
  }
  return d_hidden;
}

void Stage::finish_head(Ops& ops, Saved& saved) const {
  head_->backward_weight(ops, saved.head);
  saved.head_in_use.reset();
  store_.gradients_complete(*head_unit_);
}

// A tied table got the head's gradient in forward; the embedding's is its last.
void Stage::finish_embedding(Ops& ops, const MicroBatch& batch, Saved& saved) const {
  embedding_->backward_weight(ops, batch, saved.embedding);
  store_.gradients_complete(*embedding_unit_);
}

// ---- parts and their values -----------------------------------------------------------------------------------------

Tensor Stage::embed(Ops& ops, const MicroBatch& batch, const StageContext& context) const {
  const Use in_use = store_.use(*embedding_unit_);
  if (!block_units_.empty()) store_.prefetch(*block_units_.front());
  return embedding_->forward(ops, batch, context);
}

Stage::Use Stage::use_in_forward(size_t block) const {
  Use in_use = store_.use(*block_units_[block]);
  if (block + 1 < block_units_.size()) {
    store_.prefetch(*block_units_[block + 1]);
  } else if (head_) {
    store_.prefetch(*head_unit_);
    store_.prefetch(head_->table().unit());
  }
  return in_use;
}

Stage::Use Stage::use_in_backward(size_t block) const {
  Use in_use = store_.use(*block_units_[block]);
  if (block > 0) store_.prefetch(*block_units_[block - 1]);
  return in_use;
}

double Stage::head_loss(Ops& ops, Tensor x, const MicroBatch& batch, const StageContext& context, Saved& saved) const {
  saved.head_in_use.emplace(store_, *head_unit_);
  const Use table_in_use = store_.use(head_->table().unit());
  return head_->forward(ops, std::move(x), batch, context, saved.head);
}

Tensor Stage::head_logits(Ops& ops, const Tensor& x, const StageContext& context) const {
  const Use norm_in_use = store_.use(*head_unit_);
  const Use table_in_use = store_.use(head_->table().unit());
  return head_->logits(ops, x, context);
}

// ---- evaluation and decoding ----------------------------------------------------------------------------------------

Tensor Stage::forward_hidden(Ops& ops, const MicroBatch& batch) const {
  CHECK(embedding_ && head_, "only a whole model is evaluated");
  Tensor hidden = embed(ops, batch, evaluation_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Use in_use = use_in_forward(i);
    Block::Saved scratch;
    hidden = blocks_[i].forward(ops, std::move(hidden), batch, evaluation_, scratch);
  }
  return hidden;
}

double Stage::evaluate(Ops& ops, const MicroBatch& batch) const {
  Saved scratch;
  return head_loss(ops, forward_hidden(ops, batch), batch, evaluation_, scratch);
}

Tensor Stage::logits(Ops& ops, const MicroBatch& batch) const {
  return head_logits(ops, forward_hidden(ops, batch), evaluation_);
}

KvCache Stage::make_cache(int64_t capacity, tensor::Dtype dtype, tensor::Device& device) const {
  const int64_t kv_heads = heads_here(config_, tensor_parallel_).kv;
  return KvCache(config_.num_layers, {capacity, kv_heads, config_.head_size()}, dtype, device);
}

Tensor Stage::decode(Ops& ops, const MicroBatch& batch, KvCache& cache) const {
  CHECK(embedding_ && head_, "only a whole model decodes");
  const int64_t length = cache.length + batch.num_tokens();
  CHECK(length <= config_.seq_len || config_.position == Position::none, "token {} is beyond the {} positions known",
        length, config_.seq_len);
  Tensor hidden = embed(ops, batch, decoding_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Use in_use = use_in_forward(i);
    hidden = blocks_[i].decode(ops, hidden, batch, decoding_, cache.layers[i]);
  }
  cache.length = length;
  return head_logits(ops, hidden.rows(hidden.dim(0) - 1, hidden.dim(0)), decoding_);
}

}  // namespace model
