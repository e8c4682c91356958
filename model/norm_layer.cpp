#include "model/norm_layer.h"

namespace model {

using parallel::Initializer;
using parallel::WeightDecay;
using tensor::Ops;
using tensor::Tensor;

NormSpec hidden_norm(const ModelConfig& config, const std::string& name,
                     const parallel::TensorParallel& tensor_parallel) {
  return {.name = name,
          .size = config.hidden_size,
          .norm = {config.norm, config.norm_eps},
          .bias = config.bias,
          .partial_grad = tensor_parallel.partial_over_tokens(),
          .is_primary = tensor_parallel.is_primary()};
}

NormLayer::NormLayer(const NormSpec& spec, parallel::ParameterStore& store) : norm_(spec.norm) {
  const auto add = [&](const std::string& name, Initializer::Kind init) {
    return &store.add({.name = name,
                       .shape = {spec.size},
                       .init = {init},
                       .weight_decay = WeightDecay::no,
                       .slice = {},
                       .is_primary = spec.is_primary,
                       .partial_grad = spec.partial_grad});
  };
  weight_ = add(spec.name + ".weight", Initializer::Kind::ones);
  const bool has_bias = spec.bias && spec.norm.kind == tensor::NormKind::layer_norm;
  if (has_bias) bias_ = add(spec.name + ".bias", Initializer::Kind::zeros);
}

void NormLayer::forward(Ops& ops, const Tensor& x, Tensor& y, Tensor& stats) const {
  ops.norm(norm_, x, weight_->value(), bias_value(), y, stats);
}

void NormLayer::forward_add(Ops& ops, const Tensor& x, const Tensor& residual, Tensor& sum, Tensor& y,
                            Tensor& stats) const {
  ops.add_norm(norm_, x, residual, weight_->value(), bias_value(), sum, y, stats);
}

void NormLayer::backward_input(Ops& ops, const Tensor& dy, const Tensor& x, const Tensor& stats, Tensor& dx,
                               tensor::Write write) const {
  ops.norm_backward_input(norm_, dy, x, weight_->value(), stats, dx, write);
}

void NormLayer::backward_weight(Ops& ops, const Tensor& dy, const Tensor& x, const Tensor& stats) const {
  Tensor dweight = weight_->grad();
  Tensor dbias = bias_ ? bias_->grad() : Tensor();
  const tensor::Write write = weight_->next_grad_write();
  if (bias_) {
    CHECK(bias_->next_grad_write() == write, "bias and weight get their gradients together");
  }
  ops.norm_backward_weight(norm_, dy, x, stats, dweight, dbias, write);
}

Tensor NormLayer::bias_value() const { return bias_ ? bias_->value() : Tensor(); }

}  // namespace model
