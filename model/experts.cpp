#include "model/experts.h"

#include "model/allocate.h"

namespace model {

using parallel::FusedParameter;
using parallel::Initializer;
using parallel::ParameterSpec;
using parallel::WeightDecay;
using tensor::Ops;
using tensor::Tensor;
using tensor::Write;

namespace {

ParameterSpec weight_spec(const std::string& name, tensor::Shape shape, double init_std, const parallel::Slice& slice) {
  return {.name = name + ".weight",
          .shape = shape,
          .init = {Initializer::Kind::normal, init_std},
          .weight_decay = WeightDecay::yes,
          .slice = slice};
}

ParameterSpec bias_spec(const std::string& name, int64_t size) {
  return {.name = name + ".bias", .shape = {size}, .init = {}, .weight_decay = WeightDecay::no, .slice = {}};
}

void add_gradients(Ops& ops, const FusedParameter& weight, const FusedParameter& bias, const Tensor& dy,
                   const Tensor& x) {
  Tensor dweight = weight.grad();
  Tensor dbias = bias.grad();
  const Write write = weight.next_grad_write();
  if (dbias) CHECK(bias.next_grad_write() == write, "bias and weight get their gradients together");
  ops.linear_backward_weight(dy, x, dweight, dbias, write);
}

/// Calls visit(expert, begin, end) with the rows of each.
template <class Experts, class Visit>
void for_each_expert(const Experts& experts, const std::vector<int64_t>& rows, const Visit& visit) {
  CHECK(rows.size() == experts.size(), "{} row counts for {} experts", rows.size(), experts.size());
  int64_t begin = 0;
  for (size_t i = 0; i < experts.size(); ++i) {
    visit(experts[i], begin, begin + rows[i]);
    begin += rows[i];
  }
}

}  // namespace

Experts::Experts(const ModelConfig& config, const std::string& name, int64_t first, int64_t count,
                 parallel::Communicator& expert_tp, parallel::ParameterStore& store)
    : activation_(config.activation),
      expert_tp_(expert_tp),
      hidden_size_(config.hidden_size),
      ffn_size_(config.expert_ffn_size()) {
  for (int64_t i = first; i < first + count; ++i) add_expert(config, name + "." + std::to_string(i), store);
}

void Experts::add_expert(const ModelConfig& config, const std::string& name, parallel::ParameterStore& store) {
  Expert& expert = experts_.emplace_back();
  std::vector<std::string> ups = {name + ".up"};
  if (is_gated(activation_)) ups.insert(ups.begin(), name + ".gate");
  const auto slice = [&](int dim) {
    return parallel::equal_slice(dim, ffn_size_, expert_tp_.rank(), expert_tp_.size());
  };
  for (const std::string& up : ups) {
    expert.up.parts.push_back(&store.add(weight_spec(up, {ffn_size_, hidden_size_}, config.init_std, slice(0))));
  }
  for (size_t i = 0; config.bias && i < ups.size(); ++i) {
    ParameterSpec bias = bias_spec(ups[i], ffn_size_);
    bias.slice = slice(0);
    expert.up_bias.parts.push_back(&store.add(std::move(bias)));
  }
  expert.down.parts.push_back(
      &store.add(weight_spec(name + ".down", {hidden_size_, ffn_size_}, config.residual_init_std(), slice(1))));
  if (!config.bias) return;
  ParameterSpec bias = bias_spec(name + ".down", hidden_size_);
  bias.is_primary = expert_tp_.rank() == 0;
  expert.down_bias.parts.push_back(&store.add(std::move(bias)));
}

int64_t Experts::ffn_here() const {
  return parallel::equal_slice(0, ffn_size_, expert_tp_.rank(), expert_tp_.size()).stored;
}

Tensor Experts::forward(Ops& ops, Tensor x, const RowCounts& rows, Saved& saved) const {
  saved.x = std::move(x);
  saved.up = activation_like(saved.x, {saved.x.dim(0), (is_gated(activation_) ? 2 : 1) * ffn_here()});
  for_each_expert(experts_, rows, [&](const Expert& expert, int64_t begin, int64_t end) {
    if (begin == end) return;
    Tensor up = saved.up.rows(begin, end);
    ops.linear(saved.x.rows(begin, end), expert.up.value(), expert.up_bias.value(), up);
  });
  activate(ops, saved);

  Tensor y = activation_like(saved.x, saved.x.shape());
  for_each_expert(experts_, rows, [&](const Expert& expert, int64_t begin, int64_t end) {
    if (begin == end) return;
    const Tensor bias = expert_tp_.rank() == 0 ? expert.down_bias.value() : Tensor();  // once in the sum
    Tensor of_expert = y.rows(begin, end);
    ops.linear(saved.activated.rows(begin, end), expert.down.value(), bias, of_expert);
  });
  return y;
}

void Experts::activate(Ops& ops, Saved& saved) const {
  saved.activated = activation_like(saved.up, {saved.up.dim(0), ffn_here()});
  ops.activation(activation_, saved.up, saved.activated);
}

Tensor Experts::backward_input(Ops& ops, Tensor dy, const RowCounts& rows, Saved& saved) const {
  saved.dy = std::move(dy);
  Tensor d_activated = activation_like(saved.dy, {saved.dy.dim(0), ffn_here()});
  for_each_expert(experts_, rows, [&](const Expert& expert, int64_t begin, int64_t end) {
    if (begin == end) return;
    Tensor of_expert = d_activated.rows(begin, end);
    ops.linear_backward_input(saved.dy.rows(begin, end), expert.down.value(), of_expert, Write::overwrite);
  });
  saved.d_up = activation_like(saved.up, saved.up.shape());
  ops.activation_backward(activation_, d_activated, saved.up, saved.d_up);
  d_activated = {};
  if (!saved.activated) activate(ops, saved);
  saved.up = {};

  Tensor dx = activation_like(saved.dy, saved.dy.shape());
  for_each_expert(experts_, rows, [&](const Expert& expert, int64_t begin, int64_t end) {
    if (begin == end) return;
    Tensor of_expert = dx.rows(begin, end);
    ops.linear_backward_input(saved.d_up.rows(begin, end), expert.up.value(), of_expert, Write::overwrite);
  });
  return dx;
}

void Experts::backward_weight(Ops& ops, const RowCounts& rows, Saved& saved) const {
  for_each_expert(experts_, rows, [&](const Expert& expert, int64_t begin, int64_t end) {
    add_gradients(ops, expert.down, expert.down_bias, saved.dy.rows(begin, end), saved.activated.rows(begin, end));
    add_gradients(ops, expert.up, expert.up_bias, saved.d_up.rows(begin, end), saved.x.rows(begin, end));
  });
}

}  // namespace model
