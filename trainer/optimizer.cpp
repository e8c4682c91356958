#include "trainer/optimizer.h"

namespace trainer {

using parallel::Parameter;
using parallel::ParameterUnit;
using parallel::Range;
using parallel::Update;
using parallel::WeightDecay;
using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Ops;
using tensor::Tensor;

Optimizer::Optimizer(const OptimizerConfig& config, parallel::ParameterStore& store, Ops& ops, uint64_t seed)
    : config_(config), store_(store) {
  for (const auto& unit : store.units()) add_state(*unit, ops, seed);
}

void Optimizer::add_state(ParameterUnit& unit, Ops& ops, uint64_t seed) {
  states_.push_back(std::make_unique<UnitState>());
  UnitState& state = *states_.back();
  tensor::Device& device = ops.device();
  const bool is_cut = store_.options().stage > 0;
  state.unit = &unit;
  state.range = store_.optimizer_range(unit);
  state.values = is_cut ? unit.own_values.view() : unit.values.view();
  const Dtype dtype = accumulator_of(state.values.dtype());
  for (Tensor* moment : {&state.exp_avg, &state.exp_avg_sq}) {
    *moment = device.allocate({state.range.size()}, dtype, MemoryCategory::optimizer);
    device.zero(*moment);
  }
  if (state.values.dtype() != dtype) {
    state.master = device.allocate({state.range.size()}, dtype, MemoryCategory::optimizer);
    for (const Parameter* parameter : unit.parameters) {
      const Range kept = store_.kept_range(*parameter);
      if (kept.size() == 0) continue;
      const int64_t begin = parameter->offset() + kept.begin - state.range.begin;
      Tensor part = state.master.rows(begin, begin + kept.size());
      draw_into(*parameter, seed, kept, part);
    }
  }
  add_stretches(state);
}

void Optimizer::add_stretches(UnitState& state) {
  const size_t first = stretches_.size();
  for (const Parameter* parameter : state.unit->parameters) {
    const Range kept = store_.kept_range(*parameter);
    if (kept.size() == 0) continue;
    const int64_t begin = parameter->offset() + kept.begin - state.range.begin;
    if (stretches_.size() > first && update_alike(*stretches_.back().spec, parameter->spec())) {
      stretches_.back().range.end = begin + kept.size();
    } else {
      stretches_.push_back({&state, {begin, begin + kept.size()}, &parameter->spec()});
    }
  }
}

bool Optimizer::update_alike(const parallel::ParameterSpec& a, const parallel::ParameterSpec& b) {
  return a.weight_decay == b.weight_decay && a.update == Update::gradient && b.update == Update::gradient;
}

void Optimizer::update(Ops& ops, const Step& step) {
  for (const Stretch& stretch : stretches_) update(ops, step, stretch);
}

void Optimizer::update(Ops& ops, const Step& step, const Stretch& stretch) const {
  const auto part = [&](const Tensor& flat) {
    return flat ? flat.rows(stretch.range.begin, stretch.range.end) : Tensor();
  };
  const UnitState& state = *stretch.state;
  const Tensor grad = part(state.unit->grad_sums);
  Tensor master = part(state.master ? state.master : state.values);
  Tensor value = state.master ? part(state.values) : Tensor();  // rounded from the master
  const parallel::ParameterSpec& spec = *stretch.spec;
  if (spec.update == Update::balance) {
    const parallel::TokenBalance& balance = spec.balance;
    return ops.balance(balance.rate, balance.share * static_cast<double>(step.tokens), grad, master, value);
  }
  const tensor::AdamW adamw{.lr = step.lr,
                            .beta1 = config_.beta1,
                            .beta2 = config_.beta2,
                            .eps = config_.eps,
                            .weight_decay = spec.weight_decay == WeightDecay::yes ? config_.weight_decay : 0,
                            .step = step.step,
                            .grad_scale = step.grad_scale};
  Tensor exp_avg = part(state.exp_avg);
  Tensor exp_avg_sq = part(state.exp_avg_sq);
  ops.adamw(adamw, grad, master, exp_avg, exp_avg_sq, value);
}

std::vector<StateFragment> Optimizer::state() const {
  std::vector<StateFragment> fragments;
  for (const auto& state : states_) {
    for (const Parameter* parameter : state->unit->parameters) {
      const Range kept = store_.kept_range(*parameter);
      const int64_t begin = parameter->offset() + kept.begin - state->range.begin;
      const auto add = [&](const char* kind, const Tensor& flat) {
        Tensor values = kept.size() > 0 ? flat.rows(begin, begin + kept.size()) : flat.rows(0, 0);
        fragments.push_back({kind, parameter, kept, std::move(values)});
      };
      add("weights", state->master ? state->master : state->values);
      add("exp_avg", state->exp_avg);
      add("exp_avg_sq", state->exp_avg_sq);
    }
  }
  return fragments;
}

void Optimizer::refresh_values(Ops& ops) {
  for (const auto& state : states_) {
    if (state->master) ops.cast(state->master, state->values);
  }
}

}  // namespace trainer
