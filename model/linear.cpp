#include "model/linear.h"

namespace model {

using parallel::Initializer;
using parallel::WeightDecay;
using tensor::Ops;
using tensor::Tensor;

Linear::Linear(const LinearSpec& spec, parallel::ParameterStore& store) {
  for (const LinearSpec::Output& output : spec.outputs) {
    weight_.parts.push_back(&store.add({.name = output.name + ".weight",
                                        .shape = {output.size, spec.in},
                                        .init = {Initializer::Kind::normal, spec.init_std},
                                        .weight_decay = WeightDecay::yes}));
    out_ += output.size;
  }
  if (!spec.bias) return;
  for (const LinearSpec::Output& output : spec.outputs) {
    bias_.parts.push_back(&store.add(
        {.name = output.name + ".bias", .shape = {output.size}, .init = {}, .weight_decay = WeightDecay::no}));
  }
}

void Linear::forward(Ops& ops, const Tensor& x, Tensor& y) const { ops.linear(x, weight_.value(), bias_.value(), y); }

void Linear::backward_input(Ops& ops, const Tensor& dy, Tensor& dx) const {
  ops.linear_backward_input(dy, weight_.value(), dx, tensor::Write::overwrite);
}

void Linear::backward_weight(Ops& ops, const Tensor& dy, const Tensor& x) const {
  Tensor dweight = weight_.grad();
  Tensor dbias = bias_.grad();
  const tensor::Write write = weight_.next_grad_write();
  if (dbias) {
    CHECK(bias_.next_grad_write() == write, "bias and weight get their gradients together");
  }
  ops.linear_backward_weight(dy, x, dweight, dbias, write);
}

}  // namespace model
