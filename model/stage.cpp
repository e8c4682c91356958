#include "model/stage.h"

#include "model/allocate.h"
#include "model/rope.h"

namespace model {

using parallel::LayerGroups;
using tensor::Ops;
using tensor::Tensor;

StageSpan whole_model(const ModelConfig& config) { return {.first_layer = 0, .last_layer = config.num_layers}; }

Stage::Stage(const ModelConfig& config, const StageSpan& span, const StageOptions& options, const LayerGroups& groups,
             parallel::ParameterStore& store)
    : config_(config), groups_(groups), store_(store) {
  training_.mode = Mode::train;
  training_.dropout = config.dropout;
  training_.dropout_seed = options.seed;
  training_.recompute = options.recompute;
  training_.statistics = options.statistics;
  training_.tokens = evaluation_.tokens = groups.tensor.tokens;

  if (span.has_embedding) add_embedding(config, options);
  for (int64_t layer = span.first_layer; layer < span.last_layer; ++layer) {
    add_block(config, layer);
  }
  if (span.has_head) add_head(config, options);
}

// A block may begin further units.
void Stage::add_block(const ModelConfig& config, int64_t layer) {
  const size_t first = store_.units().size();
  begin_unit("layers." + std::to_string(layer));
  blocks_.emplace_back(config, layer, groups_, store_);
  std::vector<Unit*>& units = block_units_.emplace_back();
  for (size_t i = first; i < store_.units().size(); ++i) units.push_back(store_.units()[i].get());
}

Stage::Unit& Stage::begin_unit(const std::string& name) {
  store_.begin_unit(name);
  return *store_.units().back();
}

void Stage::add_embedding(const ModelConfig& config, const StageOptions& options) {
  parallel::Parameter& table = add_token_table(options);
  token_unit_ = &table.unit();
  embedding_units_ = {token_unit_};
  if (config.position == Position::learned) embedding_units_.push_back(&begin_unit("embedding.position"));
  embedding_.emplace(config, table, groups_.tensor, store_);
}

void Stage::add_head(const ModelConfig& config, const StageOptions& options) {
  parallel::Parameter* table = config.tie_embeddings ? store_.find(kTokenTable) : nullptr;
  const bool is_here_already = table != nullptr;
  if (!is_here_already && config.tie_embeddings) {
    table = &add_token_table(options);
  } else if (!is_here_already) {
    begin_unit("head");
    table = &store_.add(token_table_spec(config, "head.weight", groups_.tensor.tp));
  }
  head_table_unit_ = &table->unit();
  norm_unit_ = &begin_unit("final_norm");
  head_units_ = {norm_unit_};
  if (!is_here_already) head_units_.push_back(head_table_unit_);
  head_.emplace(config, *table, groups_.tensor, store_);
}

// A unit of its own: first and last stage then cut it alike.
parallel::Parameter& Stage::add_token_table(const StageOptions& options) {
  begin_unit("embedding.token");
  parallel::ParameterSpec spec = token_table_spec(config_, kTokenTable, groups_.tensor.tp);
  if (config_.tie_embeddings && options.tied) {
    spec.shared_with = options.tied;
    spec.is_primary = options.tied->rank() == 0;
  }
  return store_.add(std::move(spec));
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
    const std::vector<Use> in_use = use_in_forward(i);
    hidden = blocks_[i].forward(ops, std::move(hidden), batch, training_, saved.blocks[i]);
  }
  if (head_) saved.loss = head_loss(ops, std::move(hidden), batch, training_, saved.head);
  return hidden;
}

Tensor Stage::backward_input(Ops& ops, const MicroBatch& batch, Tensor d_hidden, Saved& saved) const {
  if (head_) d_hidden = head_backward_input(ops, saved, Use::Kind::repeated);
  for (size_t i = blocks_.size(); i-- > 0;) {
    const std::vector<Use> in_use = use_in_backward(i, Use::Kind::repeated);
    d_hidden = blocks_[i].backward_input(ops, std::move(d_hidden), batch, training_, saved.blocks[i]);
  }
  if (embedding_) embedding_->backward_input(ops, std::move(d_hidden), batch, training_, saved.embedding);
  return d_hidden;
}

void Stage::backward_weight(Ops& ops, const MicroBatch& batch, Saved& saved, Reduce reduce) const {
  if (head_) finish_head(ops, saved, reduce);
  for (size_t i = blocks_.size(); i-- > 0;) {
    {
      const std::vector<Use> in_use =
          use_in_backward(i, Use::Kind::last);  // selective recompute makes the outputs of norms again
      blocks_[i].backward_weight(ops, batch, training_, saved.blocks[i]);
    }
    reduce_if_now(reduce, block_units_[i]);
  }
  if (embedding_) finish_embedding(ops, batch, saved, reduce);
}

Tensor Stage::backward(Ops& ops, const MicroBatch& batch, Tensor d_hidden, Saved& saved, Reduce reduce) const {
  if (head_) {
    d_hidden = head_backward_input(ops, saved, Use::Kind::last);
    finish_head(ops, saved, reduce);
  }
  for (size_t i = blocks_.size(); i-- > 0;) {
    {
      const std::vector<Use> in_use = use_in_backward(i, Use::Kind::last);
      d_hidden = blocks_[i].backward_input(ops, std::move(d_hidden), batch, training_, saved.blocks[i]);
      blocks_[i].backward_weight(ops, batch, training_, saved.blocks[i]);
    }
    reduce_if_now(reduce, block_units_[i]);
  }
  if (embedding_) {
    embedding_->backward_input(ops, std::move(d_hidden), batch, training_, saved.embedding);
    finish_embedding(ops, batch, saved, reduce);
  }
  return d_hidden;
}

void Stage::finish_head(Ops& ops, Saved& saved, Reduce reduce) const {
  head_->backward_weight(ops, saved.head);
  reduce_if_now(reduce, head_units_);
}

// A tied table got the head's gradient in forward; the embedding's is its last.
void Stage::finish_embedding(Ops& ops, const MicroBatch& batch, Saved& saved, Reduce reduce) const {
  embedding_->backward_weight(ops, batch, saved.embedding);
  reduce_if_now(reduce, embedding_units_);
}

void Stage::reduce_if_now(Reduce reduce, const std::vector<Unit*>& units) const {
  if (reduce == Reduce::later) return;
  for (Unit* unit : units) store_.reduce_gradients(*unit);
}

void Stage::add_router_biases(RoutingStatistics& statistics) const {
  for (const Block& block : blocks_) block.add_router_bias(store_, statistics);
}

// ---- parts and their values -----------------------------------------------------------------------------------------

std::vector<Stage::Use> Stage::hold() const {
  std::vector<Use> held;
  const auto hold = [&](const std::vector<Unit*>& units) {
    for (Unit* unit : units) held.push_back(store_.hold(*unit));
  };
  hold(embedding_units_);
  for (const std::vector<Unit*>& units : block_units_) hold(units);
  hold(head_units_);
  return held;
}

Tensor Stage::embed(Ops& ops, const MicroBatch& batch, const StageContext& context) const {
  // The table is kept for a head that reads it too.
  const Use in_use = store_.use(*token_unit_, config_.tie_embeddings ? Use::Kind::repeated : Use::Kind::last);
  const Use position_in_use = store_.use(*embedding_units_.back(), Use::Kind::last);
  if (!block_units_.empty()) prefetch(block_units_.front());
  return embedding_->forward(ops, batch, context);
}

void Stage::prefetch(const std::vector<Unit*>& units) const {
  for (Unit* unit : units) store_.prefetch(*unit);
}

std::vector<Stage::Use> Stage::use(const std::vector<Unit*>& units, Use::Kind kind) const {
  std::vector<Use> in_use;
  for (Unit* unit : units) in_use.push_back(store_.use(*unit, kind));
  return in_use;
}

std::vector<Stage::Use> Stage::use_in_forward(size_t block) const {
  std::vector<Use> in_use = use(block_units_[block], Use::Kind::repeated);
  if (block + 1 < block_units_.size()) {
    prefetch(block_units_[block + 1]);
  } else if (head_) {
    store_.prefetch(*norm_unit_);
    store_.prefetch(*head_table_unit_);
  }
  return in_use;
}

std::vector<Stage::Use> Stage::use_in_backward(size_t block, Use::Kind kind) const {
  std::vector<Use> in_use = use(block_units_[block], kind);
  if (block > 0) prefetch(block_units_[block - 1]);
  return in_use;
}

double Stage::head_loss(Ops& ops, Tensor x, const MicroBatch& batch, const StageContext& context,
                        Head::Saved& saved) const {
  const Use norm_in_use = store_.use(*norm_unit_);
  const Use table_in_use = store_.use(*head_table_unit_, Use::Kind::last);
  return head_->forward(ops, std::move(x), batch, context, saved);
}

Tensor Stage::head_logits(Ops& ops, const Tensor& x, const StageContext& context) const {
  const Use norm_in_use = store_.use(*norm_unit_);
  const Use table_in_use = store_.use(*head_table_unit_, Use::Kind::last);
  return head_->logits(ops, x, context);
}

Tensor Stage::head_backward_input(Ops& ops, Saved& saved, Use::Kind kind) const {
  const Use in_use = store_.use(*norm_unit_, kind);
  if (!block_units_.empty()) prefetch(block_units_.back());
  return head_->backward_input(ops, saved.head);
}

// ---- evaluation and decoding ----------------------------------------------------------------------------------------

Tensor Stage::blocks_evaluated(Ops& ops, const MicroBatch& batch, Tensor hidden) const {
  if (embedding_) hidden = embed(ops, batch, evaluation_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const std::vector<Use> in_use = use_in_forward(i);
    Block::Saved scratch;
    hidden = blocks_[i].forward(ops, std::move(hidden), batch, evaluation_, scratch);
  }
  return hidden;
}

Stage::Evaluated Stage::evaluate(Ops& ops, const MicroBatch& batch, Tensor hidden) const {
  hidden = blocks_evaluated(ops, batch, std::move(hidden));
  if (!head_) return {.hidden = std::move(hidden)};
  Head::Saved scratch;
  return {.hidden = {}, .loss = head_loss(ops, std::move(hidden), batch, evaluation_, scratch)};
}

Tensor Stage::logits(Ops& ops, const MicroBatch& batch) const {
  CHECK(embedding_ && head_, "logits are those of a whole model");
  return head_logits(ops, blocks_evaluated(ops, batch, {}), evaluation_);
}

KvCache Stage::make_cache(int64_t capacity, tensor::Dtype dtype, tensor::Device& device) const {
  const int64_t kv_heads = heads_here(config_, groups_.tensor).kv;
  return KvCache(std::ssize(blocks_), {capacity, kv_heads, config_.head_size()}, dtype, device);
}

Tensor Stage::decode(Ops& ops, const MicroBatch& batch, Tensor hidden, KvCache& cache) const {
  const int64_t length = cache.length + batch.num_tokens();
  CHECK(length <= config_.seq_len || config_.position == Position::none, "token {} is beyond the {} positions known",
        length, config_.seq_len);
  if (embedding_) hidden = embed(ops, batch, decoding_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const std::vector<Use> in_use = use_in_forward(i);
    hidden = blocks_[i].decode(ops, hidden, batch, decoding_, cache.layers[i]);
  }
  cache.length = length;
  return head_ ? head_logits(ops, hidden.rows(hidden.dim(0) - 1, hidden.dim(0)), decoding_) : std::move(hidden);
}

}  // namespace model
