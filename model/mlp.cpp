#include "model/mlp.h"

#include "model/allocate.h"

namespace model {

using tensor::Ops;
using tensor::Tensor;

namespace {

LinearSpec up_spec(const ModelConfig& config, const std::string& name) {
  LinearSpec spec{.in = config.hidden_size, .outputs = {}, .bias = config.bias, .init_std = config.init_std};
  if (is_gated(config.activation)) spec.outputs.push_back({name + ".gate", config.ffn_size()});
  spec.outputs.push_back({name + ".up", config.ffn_size()});
  return spec;
}

LinearSpec down_spec(const ModelConfig& config, const std::string& name) {
  return {.in = config.ffn_size(),
          .outputs = {{name + ".down", config.hidden_size}},
          .bias = config.bias,
          .init_std = config.residual_init_std()};
}

}  // namespace

Mlp::Mlp(const ModelConfig& config, const std::string& name, const parallel::TensorParallel& tensor_parallel,
         parallel::ParameterStore& store)
    : activation_(config.activation),
      up_(up_spec(config, name), tensor_parallel, store),
      down_(down_spec(config, name), tensor_parallel, store) {}

Tensor Mlp::forward(Ops& ops, const Tensor& x, const StageContext& context, Saved& saved) const {
  recompute(ops, x, context, saved);
  return down_.forward(ops, saved.activated, context.tokens);
}

void Mlp::recompute(Ops& ops, const Tensor& x, const StageContext& context, Saved& saved) const {
  saved.up = up_.forward(ops, x, context.tokens);
  activate(ops, saved);
}

Tensor Mlp::backward_input(Ops& ops, Tensor dy, const StageContext& context, Saved& saved) const {
  Tensor d_activated = down_.backward_input(ops, dy, context.tokens);
  saved.dy = std::move(dy);
  saved.d_up = activation_like(saved.up, saved.up.shape());
  ops.activation_backward(activation_, d_activated, saved.up, saved.d_up);
  d_activated = {};
  if (!saved.activated) activate(ops, saved);
  saved.up = {};
  return up_.backward_input(ops, saved.d_up, context.tokens);
}

void Mlp::backward_weight(Ops& ops, const Tensor& x, const StageContext& context, Saved& saved) const {
  down_.backward_weight(ops, saved.dy, saved.activated);
  up_.backward_weight(ops, saved.d_up, x, context.tokens);
}

void Mlp::activate(Ops& ops, Saved& saved) const {
  saved.activated = activation_like(saved.up, {saved.up.dim(0), ffn_size(saved)});
  ops.activation(activation_, saved.up, saved.activated);
}

int64_t Mlp::ffn_size(const Saved& saved) const {
  return is_gated(activation_) ? saved.up.dim(1) / 2 : saved.up.dim(1);
}

}  // namespace model
