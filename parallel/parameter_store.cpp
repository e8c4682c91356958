#include "parallel/parameter_store.h"

#include <algorithm>

namespace parallel {

using tensor::Device;
using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Tensor;

namespace {

/// Units whose gradients are whole while every micro-batch reduces them: one in flight, one being written.
constexpr size_t kMaxReducing = 1;

Range intersect(const Range& a, const Range& b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// Elements drawn at a time: host memory stays small however large the parameter.
constexpr int64_t kChunk = 1 << 18;

template <class T>
void upload_as(const std::vector<double>& values, Tensor& to) {
  std::vector<T> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(),
                 [](double x) { return T(static_cast<tensor::compute_t<T>>(x)); });
  to.device().copy_from_host(rounded.data(), to);
}

void upload(const std::vector<double>& values, Tensor& to) {
  switch (to.dtype()) {
    case Dtype::fp32:
      return upload_as<float>(values, to);
    case Dtype::bf16:
      return upload_as<tensor::bfloat16>(values, to);
    case Dtype::fp64:
      return upload_as<double>(values, to);
    default:
      CHECK(false, "parameters are floating, not {}", to_string(to.dtype()));
  }
}

}  // namespace

Tensor& ParameterUnit::grads_to_write() {
  if (incoming_) store_->finish_reduction(*this);
  if (!grads) {
    const Dtype dtype = accumulator_of(own_values.dtype());
    grads = own_values.device().allocate({numel}, dtype, MemoryCategory::gradients);
  }
  return grads;
}

// ---- registration and memory ---------------------------------------------------------------------------------------

ParameterStore::ParameterStore(const ZeroOptions& options, const DataParallel& data_parallel)
    : options_(options), data_parallel_(data_parallel) {}

ParameterStore::~ParameterStore() = default;

void ParameterStore::begin_unit(std::string name) {
  units_.push_back(std::make_unique<ParameterUnit>());
  units_.back()->store_ = this;
  units_.back()->name = std::move(name);
}

Parameter& ParameterStore::add(ParameterSpec spec) {
  CHECK(!units_.empty(), "begin_unit comes before add(\"{}\")", spec.name);
  ParameterUnit& unit = *units_.back();
  if (spec.partial_grad && spec.partial_grad->size() == 1) spec.partial_grad = nullptr;  // one part is the whole
  parameters_.push_back(std::make_unique<Parameter>(std::move(spec), unit, unit.numel));
  Parameter& parameter = *parameters_.back();
  const bool is_new = by_name_.emplace(parameter.name(), &parameter).second;
  CHECK(is_new, "the name {} is taken", parameter.name());
  unit.parameters.push_back(&parameter);
  unit.numel += parameter.stored_numel();
  return parameter;
}

void ParameterStore::cut(ParameterUnit& unit) const {
  const Communicator& shard = data_parallel_.shard;
  std::vector<int64_t> bounds = {0};
  for (int rank = 1; rank < shard.size(); ++rank) {
    const int64_t even = unit.numel * rank / shard.size();
    int64_t bound = even;
    for (const Parameter* parameter : unit.parameters) {
      const int64_t inside = even - parameter->offset();
      if (inside < 0 || inside >= parameter->stored_numel()) continue;
      const int64_t row = parameter->spec().stored_shape().row_numel();
      bound = parameter->offset() + (inside + row / 2) / row * row;
    }
    bounds.push_back(std::max(bound, bounds.back()));
  }
  bounds.push_back(unit.numel);
  for (size_t i = 0; i + 1 < bounds.size(); ++i) unit.cut_sizes.push_back(bounds[i + 1] - bounds[i]);
  const auto rank = static_cast<size_t>(shard.rank());
  unit.own = {bounds[rank], bounds[rank + 1]};
}

void ParameterStore::allocate(tensor::Ops& ops, Dtype dtype) {
  ops_ = &ops;
  Device& device = ops.device();
  const Dtype grad_dtype = accumulator_of(dtype);
  for (const auto& unit : units_) {
    cut(*unit);
    const Range own = unit->own;
    if (options_.stage < 3) {
      unit->values = device.allocate({unit->numel}, dtype, MemoryCategory::parameters);
      unit->own_values = unit->values.rows(own.begin, own.end);
    } else {
      unit->own_values = device.allocate({own.size()}, dtype, MemoryCategory::parameters);
    }
    const Range kept = optimizer_range(*unit);
    if (reduces_every_micro_batch()) {
      unit->grad_sums = device.allocate({kept.size()}, grad_dtype, MemoryCategory::gradients);
    } else {
      unit->grads = device.allocate({unit->numel}, grad_dtype, MemoryCategory::gradients);
      unit->grad_sums = unit->grads.rows(kept.begin, kept.end);
    }
    unit->own_grads = unit->grad_sums.rows(own.begin - kept.begin, own.end - kept.begin);
  }
}

bool ParameterStore::reduces_every_micro_batch() const {
  return options_.stage >= 2 || options_.reduce_every == ReduceEvery::micro_batch;
}

void draw_into(const Parameter& parameter, uint64_t seed, const Range& box, Tensor& to) {
  if (to.device().kind() == tensor::DeviceKind::paper) return;  // billions of values that nobody keeps
  for (int64_t begin = box.begin; begin < box.end; begin += kChunk) {
    const int64_t end = std::min(box.end, begin + kChunk);
    Tensor part = to.rows(begin - box.begin, end - box.begin);
    upload(draw_stored_values(parameter.spec(), seed, {begin, end}), part);
  }
}

void ParameterStore::initialize(uint64_t seed) {
  for (const auto& unit : units_) {
    const Range here = unit->values ? Range{0, unit->numel} : unit->own;
    const Tensor& flat = unit->values ? unit->values : unit->own_values;
    for (const Parameter* parameter : unit->parameters) {
      const int64_t offset = parameter->offset();
      const Range part = intersect(here, {offset, offset + parameter->stored_numel()});
      if (part.size() == 0) continue;
      Tensor to = flat.rows(part.begin - here.begin, part.end - here.begin);
      draw_into(*parameter, seed, {part.begin - offset, part.end - offset}, to);
    }
  }
}

// ---- values --------------------------------------------------------------------------------------------------------

ParameterStore::Use::Use(ParameterStore& store, ParameterUnit& unit) : store_(&store), unit_(&unit) {
  store_->acquire(unit);
}

ParameterStore::Use::~Use() {
  if (unit_) store_->release(*unit_);
}

void ParameterStore::prefetch(ParameterUnit& unit) { start_gather(unit); }

void ParameterStore::acquire(ParameterUnit& unit) {
  start_gather(unit);
  unit.gather_.wait();
  ++unit.num_users_;
}

void ParameterStore::release(ParameterUnit& unit) {
  const bool is_free = --unit.num_users_ == 0;
  if (is_free && options_.stage == 3 && options_.reshard == Reshard::forward) unit.values = {};
}

void ParameterStore::start_gather(ParameterUnit& unit) {
  if (unit.values) return;
  unit.values = ops_->device().allocate({unit.numel}, unit.own_values.dtype(), MemoryCategory::parameters);
  unit.gather_ = data_parallel_.shard.all_gather_v(unit.own_values, unit.values, unit.cut_sizes);
}

void ParameterStore::publish_values() {
  if (options_.stage == 0) return;
  for (const auto& unit : units_) {
    if (options_.stage == 3) {
      CHECK(unit->num_users_ == 0, "{} is not in use while its values change", unit->name);
      unit->gather_.wait();
      unit->values = {};
    } else {
      unit->gather_ = data_parallel_.shard.all_gather_v(unit->own_values, unit->values, unit->cut_sizes);
    }
  }
  for (const auto& unit : units_) unit->gather_.wait();
}

// ---- gradients -----------------------------------------------------------------------------------------------------

void ParameterStore::begin_step() {
  for (const auto& parameter : parameters_) parameter->has_grad_ = false;
  for (const auto& unit : units_) unit->has_sums_ = false;
}

void ParameterStore::begin_micro_batch(bool is_last) {
  is_last_micro_batch_ = is_last;
  finish_reductions();  // a unit's next gradients would otherwise join those that are being reduced
}

void ParameterStore::gradients_complete(ParameterUnit& unit) {
  if (options_.stage == 3 && options_.reshard == Reshard::never && unit.num_users_ == 0) unit.values = {};
  if (!reduces_every_micro_batch() && !is_last_micro_batch_) return;

  zero_unwritten(unit);
  Communicator& shard = data_parallel_.shard;
  if (options_.stage == 0) {
    unit.reduction_ = shard.all_reduce(unit.grads, Reduction::sum);
  } else if (!reduces_every_micro_batch()) {
    unit.reduction_ = shard.reduce_scatter_v(unit.grads, unit.own_grads, unit.cut_sizes);
  } else {
    const Tensor& sums = unit.grad_sums;
    unit.incoming_ = sums.device().allocate(sums.shape(), sums.dtype(), MemoryCategory::gradients);
    unit.reduction_ = shard.reduce_scatter_v(unit.grads, unit.incoming_, unit.cut_sizes);
  }
  reducing_.push_back(&unit);
  while (reduces_every_micro_batch() && reducing_.size() > kMaxReducing) {
    finish_reduction(*reducing_.front());
  }
}

void ParameterStore::finish_reduction(ParameterUnit& unit) {
  std::erase(reducing_, &unit);
  unit.reduction_.wait();
  if (!reduces_every_micro_batch()) return;
  const Tensor& reduced = options_.stage == 0 ? unit.grads : unit.incoming_;
  if (unit.has_sums_) {
    ops_->add(unit.grad_sums, reduced, unit.grad_sums);
  } else {
    ops_->device().copy(reduced, unit.grad_sums);
  }
  unit.has_sums_ = true;
  unit.grads = {};
  unit.incoming_ = {};
  for (Parameter* parameter : unit.parameters) parameter->has_grad_ = false;
}

void ParameterStore::finish_reductions() {
  while (!reducing_.empty()) finish_reduction(*reducing_.front());
}

void ParameterStore::finish_gradients() {
  finish_reductions();
  for (const auto& unit : units_) {
    unit->reduction_ = data_parallel_.replica.all_reduce(unit->grad_sums, Reduction::sum);
  }
  for (const auto& unit : units_) unit->reduction_.wait();
  sum_partial_grads();
}

void ParameterStore::zero_unwritten(ParameterUnit& unit) {
  for (Parameter* parameter : unit.parameters) {
    if (parameter->next_grad_write() == tensor::Write::accumulate) continue;
    Tensor grad = parameter->grad();
    grad.device().zero(grad);
  }
}

void ParameterStore::sum_partial_grads() {
  // All that one group shares travels in one buffer: these are many small tensors.
  std::vector<Communicator*> groups;
  std::map<Communicator*, std::vector<Tensor>> parts;
  for (const auto& parameter : parameters_) {
    Communicator* group = parameter->spec().partial_grad;
    const Range kept = kept_range(*parameter);
    if (!group || kept.size() == 0) continue;
    if (!parts.contains(group)) groups.push_back(group);
    const ParameterUnit& unit = parameter->unit();
    const int64_t begin = parameter->offset() + kept.begin - optimizer_range(unit).begin;
    parts[group].push_back(unit.grad_sums.rows(begin, begin + kept.size()));
  }
  for (Communicator* group : groups) {
    int64_t numel = 0;
    for (const Tensor& part : parts[group]) numel += part.numel();
    Tensor packed = ops_->device().allocate({numel}, parts[group].front().dtype(), MemoryCategory::gradients);
    const auto for_each_place = [&](const auto& visit) {
      int64_t begin = 0;
      for (Tensor& part : parts[group]) {
        Tensor place = packed.rows(begin, begin + part.numel());
        visit(part, place);
        begin += part.numel();
      }
    };
    for_each_place([&](Tensor& part, Tensor& place) { ops_->device().copy(part, place); });
    group->all_reduce(packed, Reduction::sum).wait();
    for_each_place([&](Tensor& part, Tensor& place) { ops_->device().copy(place, part); });
  }
}

// ---- what there is -------------------------------------------------------------------------------------------------

std::vector<Parameter*> ParameterStore::parameters() const {
  std::vector<Parameter*> all;
  for (const auto& parameter : parameters_) all.push_back(parameter.get());
  return all;
}

Parameter& ParameterStore::at(std::string_view name) const {
  const auto found = by_name_.find(name);
  CHECK(found != by_name_.end(), "there is a parameter {}", name);
  return *found->second;
}

Range ParameterStore::optimizer_range(const ParameterUnit& unit) const {
  return options_.stage == 0 ? Range{0, unit.numel} : unit.own;
}

int64_t ParameterStore::stored_numel() const {
  int64_t total = 0;
  for (const auto& unit : units_) total += unit->numel;
  return total;
}

int64_t ParameterStore::owned_numel() const {
  int64_t total = 0;
  for (const auto& parameter : parameters_) {
    for (const StoredRun& run : logical_runs(parameter->spec(), owned_range(*parameter))) total += run.count;
  }
  return total;
}

Range ParameterStore::owned_range(const Parameter& parameter) const {
  if (!parameter.spec().is_primary || data_parallel_.replica.rank() != 0) return {};
  const Range box = {parameter.offset(), parameter.offset() + parameter.stored_numel()};
  const Range owned = intersect(parameter.unit().own, box);
  return {owned.begin - box.begin, owned.end - box.begin};
}

Range ParameterStore::kept_range(const Parameter& parameter) const {
  const Range box = {parameter.offset(), parameter.offset() + parameter.stored_numel()};
  const Range kept = intersect(optimizer_range(parameter.unit()), box);
  return {kept.begin - box.begin, kept.end - box.begin};
}

}  // namespace parallel
