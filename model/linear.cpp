#include "model/linear.h"

#include "model/allocate.h"

namespace model {

using parallel::FusedParameter;
using parallel::Initializer;
using parallel::ParameterSpec;
using parallel::TensorParallel;
using parallel::TokenSharding;
using parallel::WeightDecay;
using tensor::Ops;
using tensor::Tensor;

namespace {

ParameterSpec weight_spec(const LinearSpec& spec, const LinearSpec::Output& output) {
  return {.name = output.name + ".weight",
          .shape = {output.size, spec.in},
          .init = {Initializer::Kind::normal, spec.init_std},
          .weight_decay = WeightDecay::yes,
          .slice = {}};
}

ParameterSpec bias_spec(const LinearSpec::Output& output) {
  return {
      .name = output.name + ".bias", .shape = {output.size}, .init = {}, .weight_decay = WeightDecay::no, .slice = {}};
}

/// Leaves of a parameter the rows of `output` that this rank makes.
ParameterSpec cut_rows(ParameterSpec parameter, const LinearSpec::Output& output, const parallel::Communicator& tp) {
  const int copies = output.replicas ? output.replicas->size() : 1;
  parameter.slice = parallel::equal_slice(0, output.size, tp.rank() / copies, tp.size() / copies);
  parameter.is_primary = !output.replicas || output.replicas->rank() == 0;
  parameter.partial_grad = output.replicas;
  return parameter;
}

void add_gradients(Ops& ops, const FusedParameter& weight, const FusedParameter& bias, const Tensor& dy,
                   const Tensor& x) {
  Tensor dweight = weight.grad();
  Tensor dbias = bias.grad();
  const tensor::Write write = weight.next_grad_write();
  if (dbias) {
    CHECK(bias.next_grad_write() == write, "bias and weight get their gradients together");
  }
  ops.linear_backward_weight(dy, x, dweight, dbias, write);
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(const LinearSpec& spec, const TensorParallel& tensor_parallel,
                                           parallel::ParameterStore& store)
    : tp_(tensor_parallel.tp), in_(spec.in) {
  for (const LinearSpec::Output& output : spec.outputs) {
    weight_.parts.push_back(&store.add(cut_rows(weight_spec(spec, output), output, tp_)));
    out_ += weight_.parts.back()->spec().stored_shape()[0];
  }
  if (!spec.bias) return;
  for (const LinearSpec::Output& output : spec.outputs) {
    bias_.parts.push_back(&store.add(cut_rows(bias_spec(output), output, tp_)));
  }
}

Tensor ColumnParallelLinear::forward(Ops& ops, const Tensor& x, TokenSharding tokens) const {
  const Tensor all = gather_tokens(tp_, x, tokens);
  Tensor y = activation_like(x, {all.dim(0), out_});
  ops.linear(all, weight_.value(), bias_.value(), y);
  return y;
}

Tensor ColumnParallelLinear::backward_input(Ops& ops, const Tensor& dy, TokenSharding tokens) const {
  Tensor dx = activation_like(dy, {dy.dim(0), in_});
  ops.linear_backward_input(dy, weight_.value(), dx, tensor::Write::overwrite);
  return sum_parts(tp_, std::move(dx), tokens);
}

void ColumnParallelLinear::backward_weight(Ops& ops, const Tensor& dy, const Tensor& x, TokenSharding tokens) const {
  add_gradients(ops, weight_, bias_, dy, gather_tokens(tp_, x, tokens));
}

RowParallelLinear::RowParallelLinear(const LinearSpec& spec, const TensorParallel& tensor_parallel,
                                     parallel::ParameterStore& store)
    : tp_(tensor_parallel.tp) {
  CHECK(spec.outputs.size() == 1, "{} products are summed one by one", spec.outputs.size());
  ParameterSpec weight = weight_spec(spec, spec.outputs.front());
  weight.slice = parallel::equal_slice(1, spec.in, tp_.rank(), tp_.size());
  weight_.parts.push_back(&store.add(std::move(weight)));
  if (!spec.bias) return;
  ParameterSpec bias = bias_spec(spec.outputs.front());
  bias.is_primary = tensor_parallel.is_primary();
  bias_.parts.push_back(&store.add(std::move(bias)));
}

Tensor RowParallelLinear::forward(Ops& ops, const Tensor& x, TokenSharding tokens) const {
  const Tensor weight = weight_.value();
  const Tensor bias = tp_.rank() == 0 ? bias_.value() : Tensor();  // once in the sum
  Tensor y = activation_like(x, {x.dim(0), weight.dim(0)});
  ops.linear(x, weight, bias, y);
  return sum_parts(tp_, std::move(y), tokens);
}

Tensor RowParallelLinear::backward_input(Ops& ops, Tensor& dy, TokenSharding tokens) const {
  dy = gather_tokens(tp_, std::move(dy), tokens);
  const Tensor weight = weight_.value();
  Tensor dx = activation_like(dy, {dy.dim(0), weight.dim(1)});
  ops.linear_backward_input(dy, weight, dx, tensor::Write::overwrite);
  return dx;
}

void RowParallelLinear::backward_weight(Ops& ops, const Tensor& dy, const Tensor& x) const {
  add_gradients(ops, weight_, bias_, dy, x);
}

}  // namespace model
