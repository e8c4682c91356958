#include "model/head.h"

#include <algorithm>

#include "model/allocate.h"

namespace model {

using parallel::Initializer;
using parallel::WeightDecay;
using tensor::MemoryCategory;
using tensor::Ops;
using tensor::Tensor;
using tensor::Transpose;
using tensor::Write;

namespace {

/// Tokens of one chunk: enough rows for the products to run at full speed, few enough for the logits to stay small.
constexpr int64_t kChunkTokens = 512;

Tensor scratch(const Tensor& like, tensor::Shape shape) {
  return like.device().allocate(shape, accumulator_of(like.dtype()), MemoryCategory::workspace);
}

}  // namespace

Head::Head(const ModelConfig& config, parallel::Parameter* tied_table, parallel::ParameterStore& store)
    : norm_({.name = "final_norm",
             .size = config.hidden_size,
             .norm = {config.norm, config.norm_eps},
             .bias = config.bias},
            store),
      weight_(tied_table) {
  if (weight_) return;
  weight_ = &store.add({.name = "head.weight",
                        .shape = {config.vocab_size, config.hidden_size},
                        .init = {Initializer::Kind::normal, config.init_std},
                        .weight_decay = WeightDecay::yes});
}

double Head::forward(Ops& ops, Tensor x, const MicroBatch& batch, Mode mode, Saved& saved) const {
  saved.x = std::move(x);
  saved.stats = statistics_like(saved.x, {saved.x.dim(0), 2});
  Tensor normed = activation_like(saved.x, saved.x.shape());
  norm_.forward(ops, saved.x, normed, saved.stats);
  if (mode == Mode::train) saved.d_normed = activation_like(saved.x, saved.x.shape());

  double loss = 0;
  const int64_t num_tokens = normed.dim(0);
  for (int64_t begin = 0; begin < num_tokens; begin += kChunkTokens) {
    const int64_t end = std::min(num_tokens, begin + kChunkTokens);
    Tensor d_chunk;
    if (mode == Mode::train) d_chunk = saved.d_normed.rows(begin, end);
    loss +=
        forward_chunk(ops, normed.rows(begin, end), batch.targets.rows(begin, end), batch.grad_scale, mode, d_chunk);
  }
  return loss;
}

double Head::forward_chunk(Ops& ops, const Tensor& normed, const Tensor& targets, double grad_scale, Mode mode,
                           Tensor& d_normed) const {
  const int64_t rows = normed.dim(0);
  const Tensor& weight = weight_->value();
  Tensor logits = scratch(normed, {rows, weight.dim(0)});
  Tensor row_max = scratch(normed, {rows});
  Tensor sum_exp = scratch(normed, {rows});
  Tensor target_logit = scratch(normed, {rows});
  ops.gemm(normed, Transpose::no, weight, Transpose::yes, logits, Write::overwrite);
  ops.cross_entropy_max(logits, row_max);
  ops.cross_entropy_exp(logits, row_max, targets, 0, sum_exp, target_logit);
  const double loss = ops.cross_entropy_loss(sum_exp, target_logit, targets);
  if (mode == Mode::evaluate) return loss;

  // bf16 models multiply bf16 gradients; elsewhere the gradient takes the place of the logits.
  const bool in_place = weight.dtype() == logits.dtype();
  Tensor dlogits = in_place ? logits.view() : activation_like(normed, logits.shape());
  ops.cross_entropy_gradient(logits, sum_exp, targets, 0, grad_scale, dlogits);
  ops.linear_backward_input(dlogits, weight, d_normed, Write::overwrite);
  Tensor no_bias;
  ops.linear_backward_weight(dlogits, normed, weight_->grad(), no_bias, weight_->next_grad_write());
  return loss;
}

Tensor Head::backward_input(Ops& ops, Saved& saved) const {
  Tensor dx = activation_like(saved.x, saved.x.shape());
  norm_.backward_input(ops, saved.d_normed, saved.x, saved.stats, dx, Write::overwrite);
  return dx;
}

void Head::backward_weight(Ops& ops, Saved& saved) const {
  norm_.backward_weight(ops, saved.d_normed, saved.x, saved.stats);
  saved = {};
}

Tensor Head::logits(Ops& ops, const Tensor& x) const {
  Tensor normed = activation_like(x, x.shape());
  Tensor stats = statistics_like(x, {x.dim(0), 2});
  norm_.forward(ops, x, normed, stats);
  Tensor logits = scratch(x, {x.dim(0), weight_->value().dim(0)});
  ops.gemm(normed, Transpose::no, weight_->value(), Transpose::yes, logits, Write::overwrite);
  return logits;
}

}  // namespace model
