#include "model/norm_layer.h"

namespace model {

using parallel::Initializer;
using parallel::WeightDecay;
using tensor::Ops;
using tensor::Tensor;

NormLayer::NormLayer(const NormSpec& spec, parallel::ParameterStore& store) : norm_(spec.norm) {
  weight_ = &store.add({.name = spec.name + ".weight",
                        .shape = {spec.size},
                        .init = {Initializer::Kind::ones},
                        .weight_decay = WeightDecay::no});
  if (spec.bias && spec.norm.kind == tensor::NormKind::layer_norm) {
    bias_ =
        &store.add({.name = spec.name + ".bias", .shape = {spec.size}, .init = {}, .weight_decay = WeightDecay::no});
  }
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
  Tensor no_bias;
  const tensor::Write write = weight_->next_grad_write();
  if (bias_) {
    CHECK(bias_->next_grad_write() == write, "bias and weight get their gradients together");
  }
  ops.norm_backward_weight(norm_, dy, x, stats, weight_->grad(), bias_ ? bias_->grad() : no_bias, write);
}

const Tensor& NormLayer::bias_value() const {
  static const Tensor kAbsent;
  return bias_ ? bias_->value() : kAbsent;
}

}  // namespace model
