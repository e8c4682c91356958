#include "trainer/optimizer.h"

#include <cmath>

namespace trainer {

using parallel::Parameter;
using parallel::ParameterUnit;
using parallel::WeightDecay;
using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Ops;
using tensor::Tensor;

Optimizer::Optimizer(const OptimizerConfig& config, parallel::ParameterStore& store, Ops& ops, uint64_t seed)
    : config_(config) {
  tensor::Device& device = ops.device();
  for (ParameterUnit& parameters : store.units()) {
    units_.push_back(std::make_unique<Unit>());
    Unit& unit = *units_.back();
    unit.parameters = &parameters;
    const Dtype state_dtype = accumulator_of(parameters.values.dtype());
    const auto state_tensor = [&] {
      return device.allocate({parameters.numel}, state_dtype, MemoryCategory::optimizer);
    };
    unit.exp_avg = state_tensor();
    unit.exp_avg_sq = state_tensor();
    device.zero(unit.exp_avg);
    device.zero(unit.exp_avg_sq);
    if (parameters.values.dtype() != state_dtype) {
      unit.master = state_tensor();
      draw_master(parameters, unit.master, seed);
    }
    add_ranges(unit);
  }
}

double Optimizer::grad_norm(Ops& ops) const {
  double sum = 0;
  for (const auto& unit : units_) sum += ops.sum_of_squares(unit->parameters->grads);
  return std::sqrt(sum);
}

void Optimizer::update(Ops& ops, const Step& step) {
  for (const Range& range : ranges_) {
    const tensor::AdamW adamw{.lr = step.lr,
                              .beta1 = config_.beta1,
                              .beta2 = config_.beta2,
                              .eps = config_.eps,
                              .weight_decay = range.weight_decay == WeightDecay::yes ? config_.weight_decay : 0,
                              .step = step.step,
                              .grad_scale = step.grad_scale};
    const auto part = [&](const Tensor& flat) { return flat ? flat.rows(range.begin, range.end) : Tensor(); };
    const Unit& unit = *range.unit;
    Tensor value = part(unit.parameters->values);
    Tensor master = part(unit.master);
    Tensor exp_avg = part(unit.exp_avg);
    Tensor exp_avg_sq = part(unit.exp_avg_sq);
    Tensor no_value;
    if (master) {
      ops.adamw(adamw, part(unit.parameters->grads), master, exp_avg, exp_avg_sq, value);
    } else {
      ops.adamw(adamw, part(unit.parameters->grads), value, exp_avg, exp_avg_sq, no_value);
    }
  }
}

std::vector<checkpoint::NamedTensor> Optimizer::state() {
  std::vector<checkpoint::NamedTensor> tensors;
  const auto add = [&](const std::string& group, const Parameter& parameter, const Tensor& flat, int64_t begin) {
    const tensor::Shape& shape = parameter.spec().shape;
    Tensor view = flat.rows(begin, begin + shape.numel()).reshaped(shape);
    state_views_.push_back(std::make_unique<Tensor>(std::move(view)));
    tensors.push_back({group + "/" + parameter.name(), state_views_.back().get()});
  };
  for (const auto& unit : units_) {
    int64_t begin = 0;
    for (const Parameter* parameter : unit->parameters->parameters) {
      add("weights", *parameter, unit->master ? unit->master : unit->parameters->values, begin);
      add("exp_avg", *parameter, unit->exp_avg, begin);
      add("exp_avg_sq", *parameter, unit->exp_avg_sq, begin);
      begin += parameter->spec().shape.numel();
    }
  }
  return tensors;
}

void Optimizer::refresh_values(Ops& ops) {
  for (const auto& unit : units_) {
    if (unit->master) ops.cast(unit->master, unit->parameters->values);
  }
}

void Optimizer::add_ranges(Unit& unit) {
  int64_t begin = 0;
  const size_t first_range = ranges_.size();
  for (const Parameter* parameter : unit.parameters->parameters) {
    const int64_t end = begin + parameter->spec().shape.numel();
    const WeightDecay weight_decay = parameter->spec().weight_decay;
    if (ranges_.size() > first_range && ranges_.back().weight_decay == weight_decay) {
      ranges_.back().end = end;
    } else {
      ranges_.push_back({&unit, begin, end, weight_decay});
    }
    begin = end;
  }
}

void Optimizer::draw_master(const ParameterUnit& parameters, Tensor& master, uint64_t seed) const {
  int64_t begin = 0;
  for (const Parameter* parameter : parameters.parameters) {
    const int64_t count = parameter->spec().shape.numel();
    std::vector<double> drawn(static_cast<size_t>(count));
    draw_initial_values(parameter->spec(), seed, 0, drawn.data(), count);
    const std::vector<float> values(drawn.begin(), drawn.end());
    Tensor part = master.rows(begin, begin + count);
    master.device().copy_from_host(values.data(), part);
    begin += count;
  }
}

}  // namespace trainer
