#include "model/block.h"

#include "model/allocate.h"

namespace model {

using parallel::LayerGroups;
using tensor::Ops;
using tensor::Tensor;
using tensor::Write;

namespace {

constexpr int64_t kAttentionBranch = 0;
constexpr int64_t kMlpBranch = 1;

std::string layer_name(int64_t layer) { return "layers." + std::to_string(layer); }

/// Gradient of a branch that went through dropout into the residual: dropout draws the same mask again.
Tensor branch_gradient(Ops& ops, const tensor::Dropout& dropout, const Tensor& token_index, const Tensor& dy) {
  Tensor d_branch = activation_like(dy, dy.shape());
  const Tensor no_residual;
  ops.dropout_add(dropout, dy, no_residual, token_index, d_branch);
  return d_branch;
}

}  // namespace

Block::Block(const ModelConfig& config, int64_t layer, const LayerGroups& groups, parallel::ParameterStore& store)
    : layer_(layer),
      tp_(groups.tensor.tp),
      attention_norm_(hidden_norm(config, layer_name(layer) + ".attention_norm", groups.tensor), store),
      attention_(config, layer_name(layer) + ".attention", groups, store),
      mlp_norm_(hidden_norm(config, layer_name(layer) + ".mlp_norm", groups.tensor), store),
      mlp_(config, layer, layer_name(layer) + ".mlp", groups, store) {}

Tensor Block::forward(Ops& ops, Tensor x, const MicroBatch& batch, const StageContext& context, Saved& saved) const {
  saved.x = std::move(x);
  forward_to_mlp(ops, batch, context, saved);
  Tensor y = mlp_.forward(ops, saved.mlp_in, batch, context, saved.mlp);
  ops.dropout_add(dropout(batch, context, kMlpBranch), y, saved.residual, held_index(batch, context), y);
  drop_recomputable(context.recompute, saved);
  return y;
}

void Block::forward_to_mlp(Ops& ops, const MicroBatch& batch, const StageContext& context, Saved& saved) const {
  const Tensor& x = saved.x;
  saved.attention_in = activation_like(x, x.shape());
  saved.attention_in_stats = statistics_like(x, {x.dim(0), 2});
  attention_norm_.forward(ops, x, saved.attention_in, saved.attention_in_stats);
  const Tensor branch = attention_.forward(ops, saved.attention_in, batch, context, saved.attention);

  saved.residual = activation_like(x, x.shape());
  saved.mlp_in = activation_like(x, x.shape());
  saved.mlp_in_stats = statistics_like(x, {x.dim(0), 2});
  if (context.dropout > 0) {
    ops.dropout_add(dropout(batch, context, kAttentionBranch), branch, x, held_index(batch, context), saved.residual);
    mlp_norm_.forward(ops, saved.residual, saved.mlp_in, saved.mlp_in_stats);
  } else {
    mlp_norm_.forward_add(ops, branch, x, saved.residual, saved.mlp_in, saved.mlp_in_stats);
  }
}

Tensor Block::backward_input(Ops& ops, Tensor dy, const MicroBatch& batch, const StageContext& context,
                             Saved& saved) const {
  if (!saved.residual) {
    forward_to_mlp(ops, batch, context, saved);
    mlp_.recompute(ops, saved.mlp_in, batch, context, saved.mlp);
  }

  const Tensor token_index = held_index(batch, context);
  Tensor d_branch = branch_gradient(ops, dropout(batch, context, kMlpBranch), token_index, dy);
  saved.d_mlp_in = mlp_.backward_input(ops, std::move(d_branch), batch, context, saved.mlp);
  Tensor d_residual = std::move(dy);
  mlp_norm_.backward_input(ops, saved.d_mlp_in, saved.residual, saved.mlp_in_stats, d_residual, Write::accumulate);

  d_branch = branch_gradient(ops, dropout(batch, context, kAttentionBranch), token_index, d_residual);
  saved.d_attention_in = attention_.backward_input(ops, std::move(d_branch), batch, context, saved.attention);
  Tensor dx = std::move(d_residual);
  attention_norm_.backward_input(ops, saved.d_attention_in, saved.x, saved.attention_in_stats, dx, Write::accumulate);
  return dx;
}

void Block::backward_weight(Ops& ops, const MicroBatch& batch, const StageContext& context, Saved& saved) const {
  const auto norm_again = [&](const NormLayer& norm, const Tensor& x, Tensor& y, Tensor& stats) {
    y = activation_like(x, x.shape());
    norm.forward(ops, x, y, stats);
  };
  if (!saved.mlp_in) norm_again(mlp_norm_, saved.residual, saved.mlp_in, saved.mlp_in_stats);
  mlp_.backward_weight(ops, saved.mlp_in, batch, context, saved.mlp);
  mlp_norm_.backward_weight(ops, saved.d_mlp_in, saved.residual, saved.mlp_in_stats);
  saved.mlp = {};
  saved.mlp_in = {};

  if (!saved.attention_in) norm_again(attention_norm_, saved.x, saved.attention_in, saved.attention_in_stats);
  attention_.backward_weight(ops, saved.attention_in, context, saved.attention);
  attention_norm_.backward_weight(ops, saved.d_attention_in, saved.x, saved.attention_in_stats);
  saved = {};
}

void Block::drop_recomputable(Recompute recompute, Saved& saved) const {
  if (recompute == Recompute::selective) {
    saved.attention_in = {};
    saved.mlp_in = {};
    saved.mlp.forget_activated();
  } else if (recompute == Recompute::full) {
    Tensor x = std::move(saved.x);
    FeedForward::Saved mlp = std::move(saved.mlp);
    mlp.keep_decisions();
    saved = {};
    saved.x = std::move(x);
    saved.mlp = std::move(mlp);
  }
}

tensor::Dropout Block::dropout(const MicroBatch& batch, const StageContext& context, int64_t branch) const {
  return {.probability = context.dropout,
          .seed = context.dropout_seed,
          .step = batch.step,
          .site = 1 + 2 * layer_ + branch};  // site 0 is the embedding
}

Tensor Block::held_index(const MicroBatch& batch, const StageContext& context) const {
  return held_tokens(tp_, batch.token_index, context.tokens);
}

Tensor Block::decode(Ops& ops, const Tensor& x, const MicroBatch& batch, const StageContext& context,
                     LayerCache& cache) const {
  Tensor normed = activation_like(x, x.shape());
  Tensor stats = statistics_like(x, {x.dim(0), 2});
  attention_norm_.forward(ops, x, normed, stats);
  const Tensor branch = attention_.decode(ops, normed, batch, context, cache);
  Tensor residual = activation_like(x, x.shape());
  mlp_norm_.forward_add(ops, branch, x, residual, normed, stats);
  FeedForward::Saved scratch;
  const Tensor mlp_out = mlp_.forward(ops, normed, batch, context, scratch);
  ops.add(mlp_out, residual, residual);
  return residual;
}

}  // namespace model
