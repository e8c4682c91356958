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

Mlp::Mlp(const ModelConfig& config, const std::string& name, parallel::ParameterStore& store)
    : activation_(config.activation), up_(up_spec(config, name), store), down_(down_spec(config, name), store) {}

Tensor Mlp::forward(Ops& ops, const Tensor& x, Saved& saved) const {
  recompute(ops, x, saved);
  Tensor y = activation_like(x, x.shape());
  down_.forward(ops, saved.activated, y);
  return y;
}

void Mlp::recompute(Ops& ops, const Tensor& x, Saved& saved) const {
  saved.up = activation_like(x, {x.dim(0), up_.out()});
  up_.forward(ops, x, saved.up);
  activate(ops, saved);
}

Tensor Mlp::backward_input(Ops& ops, Tensor dy, Saved& saved) const {
  Tensor d_activated = activation_like(dy, {dy.dim(0), ffn_size(saved)});
  down_.backward_input(ops, dy, d_activated);
  saved.d_up = activation_like(dy, saved.up.shape());
  ops.activation_backward(activation_, d_activated, saved.up, saved.d_up);
  d_activated = {};
  if (!saved.activated) activate(ops, saved);
  saved.up = {};
  Tensor dx = activation_like(dy, dy.shape());
  up_.backward_input(ops, saved.d_up, dx);
  saved.dy = std::move(dy);
  return dx;
}

void Mlp::backward_weight(Ops& ops, const Tensor& x, Saved& saved) const {
  down_.backward_weight(ops, saved.dy, saved.activated);
  up_.backward_weight(ops, saved.d_up, x);
}

void Mlp::activate(Ops& ops, Saved& saved) const {
  saved.activated = activation_like(saved.up, {saved.up.dim(0), ffn_size(saved)});
  ops.activation(activation_, saved.up, saved.activated);
}

int64_t Mlp::ffn_size(const Saved& saved) const {
  return is_gated(activation_) ? saved.up.dim(1) / 2 : saved.up.dim(1);
}

}  // namespace model
