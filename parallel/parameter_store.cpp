#include "parallel/parameter_store.h"

#include <algorithm>

namespace parallel {

using tensor::Device;
using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Tensor;

namespace {

/// Units whose gradients are whole while a step reduces them often: one in flight, one being written.
constexpr size_t kMaxReducing = 1;

void finish_all(std::vector<Handle>& calls) {
  for (Handle& call : calls) call.wait();
  calls.clear();
}

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
  if (is_reducing_) {
    CHECK(store_->reduces_often(), "the gradients of {} are added to before the step's one reduction", name);
    store_->finish_reduction(*this);
  }
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

void ParameterStore::begin_unit(std::string name, const DataParallel& groups) {
  units_.push_back(std::make_unique<ParameterUnit>(std::move(name), groups));
  units_.back()->store_ = this;
}

Parameter& ParameterStore::add(ParameterSpec spec) {
  CHECK(!units_.empty(), "begin_unit comes before add(\"{}\")", spec.name);
  ParameterUnit& unit = *units_.back();
  for (Communicator** group : {&spec.partial_grad, &spec.shared_with}) {
    if (*group && (*group)->size() == 1) *group = nullptr;  // one part is the whole
  }
  parameters_.push_back(std::make_unique<Parameter>(std::move(spec), unit, unit.numel));
  Parameter& parameter = *parameters_.back();
  const bool is_new = by_name_.emplace(parameter.name(), &parameter).second;
  CHECK(is_new, "the name {} is taken", parameter.name());
  unit.parameters.push_back(&parameter);
  unit.numel += parameter.stored_numel();
  return parameter;
}

void ParameterStore::cut(ParameterUnit& unit) const {
  const Communicator& shard = unit.groups.shard;
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
    if (reduces_often()) {
      unit->grad_sums = device.allocate({kept.size()}, grad_dtype, MemoryCategory::gradients);
    } else {
      unit->grads = device.allocate({unit->numel}, grad_dtype, MemoryCategory::gradients);
      unit->grad_sums = unit->grads.rows(kept.begin, kept.end);
    }
    unit->own_grads = unit->grad_sums.rows(own.begin - kept.begin, own.end - kept.begin);
  }
}

bool ParameterStore::reduces_often() const {
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

ParameterStore::Use::Use(ParameterStore& store, ParameterUnit& unit, Kind kind)
    : store_(&store), unit_(&unit), kind_(kind) {
  store.start_gather(unit);
  ++unit.num_users_;
}

ParameterStore::Use::~Use() {
  if (unit_) store_->release(*unit_, kind_);
}

ParameterStore::Use ParameterStore::use(ParameterUnit& unit, Use::Kind kind) {
  Use use(*this, unit, kind);
  unit.gather_.wait();
  return use;
}

ParameterStore::Use ParameterStore::hold(ParameterUnit& unit) { return Use(*this, unit, Use::Kind::last); }

void ParameterStore::prefetch(ParameterUnit& unit) { start_gather(unit); }

void ParameterStore::release(ParameterUnit& unit, Use::Kind kind) {
  if (--unit.num_users_ > 0 || options_.stage < 3) return;
  if (kind == Use::Kind::repeated && options_.reshard == Reshard::never) return;
  unit.gather_.wait();
  unit.values = {};
}

void ParameterStore::start_gather(ParameterUnit& unit) {
  if (unit.values) return;
  unit.values = ops_->device().allocate({unit.numel}, unit.own_values.dtype(), MemoryCategory::parameters);
  unit.gather_ = unit.groups.shard.all_gather_v(unit.own_values, unit.values, unit.cut_sizes);
}

void ParameterStore::publish_values() {
  if (options_.stage == 0) return;
  for (const auto& unit : units_) {
    if (options_.stage == 3) {
      CHECK(unit->num_users_ == 0, "{} is not in use while its values change", unit->name);
      unit->gather_.wait();
      unit->values = {};
    } else {
      unit->gather_ = unit->groups.shard.all_gather_v(unit->own_values, unit->values, unit->cut_sizes);
    }
  }
  for (const auto& unit : units_) unit->gather_.wait();
}

// ---- gradients -----------------------------------------------------------------------------------------------------

void ParameterStore::begin_step() {
  for (const auto& parameter : parameters_) parameter->has_grad_ = false;
  for (const auto& unit : units_) unit->has_sums_ = false;
}

bool ParameterStore::is_written(const ParameterUnit& unit) const {
  return std::any_of(unit.parameters.begin(), unit.parameters.end(),
                     [](const Parameter* parameter) { return parameter->has_grad_; });
}

void ParameterStore::reduce_gradients(ParameterUnit& unit) {
  // Nothing new: several micro-batches' gradients of a head, say, are written in forward, and reduced at once.
  if (unit.has_sums_ && !unit.is_reducing_ && !is_written(unit)) return;

  zero_unwritten(unit);
  if (options_.stage == 0) {
    start_all_reduce(unit);
  } else if (!reduces_often()) {
    start_reduce_scatter(unit, unit.own_grads);
  } else {
    const Tensor& sums = unit.grad_sums;
    unit.incoming_ = sums.device().allocate(sums.shape(), sums.dtype(), MemoryCategory::gradients);
    start_reduce_scatter(unit, unit.incoming_);
  }
  unit.is_reducing_ = true;
  reducing_.push_back(&unit);
  while (reduces_often() && reducing_.size() > kMaxReducing) finish_reduction(*reducing_.front());
}

std::vector<Range> ParameterStore::buckets(const ParameterUnit& unit) const {
  const int64_t element_bytes = size_of(unit.grads.dtype());
  const int64_t most =
      options_.bucket_bytes > 0 ? std::max<int64_t>(1, options_.bucket_bytes / element_bytes) : unit.numel;
  std::vector<Range> buckets;
  for (int64_t begin = 0; begin < unit.numel; begin += most) {
    buckets.push_back({begin, std::min(unit.numel, begin + most)});
  }
  return buckets;
}

void ParameterStore::start_all_reduce(ParameterUnit& unit) {
  for (const Range& bucket : buckets(unit)) {
    Tensor part = unit.grads.rows(bucket.begin, bucket.end);
    unit.reductions_.push_back(unit.groups.shard.all_reduce(part, Reduction::sum));
  }
}

void ParameterStore::start_reduce_scatter(ParameterUnit& unit, const Tensor& own) {
  for (const Range& bucket : buckets(unit)) {
    std::vector<int64_t> rows;  // of each rank's cut, those in this bucket
    int64_t cut_begin = 0;
    for (const int64_t cut_size : unit.cut_sizes) {
      rows.push_back(intersect(bucket, {cut_begin, cut_begin + cut_size}).size());
      cut_begin += cut_size;
    }
    const Range mine = intersect(bucket, unit.own);
    const int64_t begin = mine.size() > 0 ? mine.begin - unit.own.begin : 0;
    Tensor part = own.rows(begin, begin + mine.size());
    const Tensor whole = unit.grads.rows(bucket.begin, bucket.end);
    unit.reductions_.push_back(unit.groups.shard.reduce_scatter_v(whole, part, rows));
  }
}

void ParameterStore::finish_reduction(ParameterUnit& unit) {
  std::erase(reducing_, &unit);
  unit.is_reducing_ = false;
  finish_all(unit.reductions_);
  if (!reduces_often()) return;
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
    unit->reductions_.push_back(unit->groups.replica.all_reduce(unit->grad_sums, Reduction::sum));
  }
  for (const auto& unit : units_) finish_all(unit->reductions_);
  std::vector<Communicator*> groups;  // in order of registration: the same on all their ranks
  for (const auto& parameter : parameters_) {
    Communicator* group = parameter->spec().partial_grad;
    if (group && std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
  }
  for (Communicator* group : groups) sum_over(*group);
}

void ParameterStore::zero_unwritten(ParameterUnit& unit) {
  for (Parameter* parameter : unit.parameters) {
    if (parameter->next_grad_write() == tensor::Write::accumulate) continue;
    Tensor grad = parameter->grad();
    grad.device().zero(grad);
  }
}

std::vector<Tensor> ParameterStore::partial_grads(const Communicator& group) const {
  std::vector<Tensor> parts;
  for (const auto& parameter : parameters_) {
    const Range kept = kept_range(*parameter);
    const ParameterSpec& spec = parameter->spec();
    if ((spec.partial_grad != &group && spec.shared_with != &group) || kept.size() == 0) continue;
    const ParameterUnit& unit = parameter->unit();
    const int64_t begin = parameter->offset() + kept.begin - optimizer_range(unit).begin;
    parts.push_back(unit.grad_sums.rows(begin, begin + kept.size()));
  }
  return parts;
}

void ParameterStore::sum_over(Communicator& group) {
  std::vector<Tensor> parts = partial_grads(group);
  if (parts.empty()) return;
  int64_t numel = 0;
  for (const Tensor& part : parts) numel += part.numel();
  Tensor packed = ops_->device().allocate({numel}, parts.front().dtype(), MemoryCategory::gradients);
  const auto for_each_place = [&](const auto& visit) {
    int64_t begin = 0;
    for (Tensor& part : parts) {
      Tensor place = packed.rows(begin, begin + part.numel());
      visit(part, place);
      begin += part.numel();
    }
  };
  for_each_place([&](Tensor& part, Tensor& place) { ops_->device().copy(part, place); });
  group.all_reduce(packed, Reduction::sum).wait();
  for_each_place([&](Tensor& part, Tensor& place) { ops_->device().copy(place, part); });
}

// ---- what there is -------------------------------------------------------------------------------------------------

std::vector<Parameter*> ParameterStore::parameters() const {
  std::vector<Parameter*> all;
  for (const auto& parameter : parameters_) all.push_back(parameter.get());
  return all;
}

Parameter* ParameterStore::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Parameter& ParameterStore::at(std::string_view name) const {
  Parameter* const found = find(name);
  CHECK(found != nullptr, "there is a parameter {}", name);
  return *found;
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
  if (!parameter.spec().is_primary || parameter.unit().groups.replica.rank() != 0) return {};
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
