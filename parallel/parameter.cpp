#include "parallel/parameter.h"

#include <algorithm>

#include "tensor/philox.h"

namespace parallel {

using tensor::Device;
using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// The parts of a fused parameter as one tensor: they were registered one after another, so they lie back to back.
Tensor join(const std::vector<const Tensor*>& parts) {
  if (parts.empty()) return {};
  int64_t rows = 0;
  const char* end = static_cast<const char*>(parts.front()->raw());
  for (const Tensor* part : parts) {
    CHECK(part->raw() == end, "the parts of a fused parameter are registered one after another");
    end += part->bytes();
    rows += part->dim(0);
  }
  const Tensor& first = *parts.front();
  return Tensor::view_of(first.raw(), first.shape().with(0, rows), first.dtype(), first.device());
}

/// Elements drawn at a time: host memory stays small however large the parameter.
constexpr int64_t kChunk = 1 << 18;

template <class T>
void initialize_as(const ParameterSpec& spec, uint64_t seed, Tensor& value) {
  const int64_t numel = value.numel();
  Tensor flat = value.reshaped({numel});
  std::vector<double> drawn(static_cast<size_t>(std::min(numel, kChunk)));
  std::vector<T> rounded(drawn.size());
  for (int64_t begin = 0; begin < numel; begin += kChunk) {
    const int64_t count = std::min(kChunk, numel - begin);
    draw_initial_values(spec, seed, begin, drawn.data(), count);
    std::transform(drawn.begin(), drawn.begin() + count, rounded.begin(),
                   [](double x) { return T(static_cast<tensor::compute_t<T>>(x)); });
    Tensor to = flat.rows(begin, begin + count);
    value.device().copy_from_host(rounded.data(), to);
  }
}

}  // namespace

Tensor FusedParameter::value() const {
  std::vector<const Tensor*> values;
  for (const Parameter* part : parts) values.push_back(&part->value());
  return join(values);
}

Tensor FusedParameter::grad() const {
  std::vector<const Tensor*> grads;
  for (const Parameter* part : parts) grads.push_back(&std::as_const(*part).grad());
  return join(grads);
}

tensor::Write FusedParameter::next_grad_write() const {
  CHECK(!parts.empty(), "an absent parameter has no gradient");
  const tensor::Write write = parts.front()->next_grad_write();
  for (size_t i = 1; i < parts.size(); ++i) {
    CHECK(parts[i]->next_grad_write() == write, "the parts of {} get their gradients together", parts[0]->name());
  }
  return write;
}

void ParameterStore::begin_unit(std::string name) {
  units_.emplace_back();
  units_.back().name = std::move(name);
}

Parameter& ParameterStore::add(ParameterSpec spec) {
  CHECK(!units_.empty(), "begin_unit comes before add(\"{}\")", spec.name);
  parameters_.push_back(std::make_unique<Parameter>(std::move(spec)));
  Parameter& parameter = *parameters_.back();
  const bool is_new = by_name_.emplace(parameter.name(), &parameter).second;
  CHECK(is_new, "the name {} is taken", parameter.name());
  units_.back().parameters.push_back(&parameter);
  units_.back().numel += parameter.spec().shape.numel();
  return parameter;
}

void ParameterStore::allocate(Device& device, Dtype dtype) {
  for (ParameterUnit& unit : units_) {
    unit.values = device.allocate(Shape{unit.numel}, dtype, MemoryCategory::parameters);
    unit.grads = device.allocate(Shape{unit.numel}, accumulator_of(dtype), MemoryCategory::gradients);
    int64_t begin = 0;
    for (Parameter* parameter : unit.parameters) {
      const Shape& shape = parameter->spec().shape;
      const int64_t end = begin + shape.numel();
      parameter->value_ = unit.values.rows(begin, end).reshaped(shape);
      parameter->grad_ = unit.grads.rows(begin, end).reshaped(shape);
      begin = end;
    }
  }
}

void ParameterStore::initialize(uint64_t seed) {
  for (const auto& parameter : parameters_) {
    Tensor& value = parameter->value_;
    switch (value.dtype()) {
      case Dtype::fp32:
        initialize_as<float>(parameter->spec(), seed, value);
        break;
      case Dtype::bf16:
        initialize_as<tensor::bfloat16>(parameter->spec(), seed, value);
        break;
      case Dtype::fp64:
        initialize_as<double>(parameter->spec(), seed, value);
        break;
      default:
        CHECK(false, "the parameter {} is of floating type", parameter->name());
    }
  }
}

void ParameterStore::forget_gradients() {
  for (const auto& parameter : parameters_) parameter->has_grad_ = false;
}

void ParameterStore::zero_unwritten_gradients() {
  for (const auto& parameter : parameters_) {
    if (parameter->next_grad_write() == tensor::Write::overwrite) parameter->grad_.device().zero(parameter->grad_);
  }
}

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

int64_t ParameterStore::numel() const {
  int64_t total = 0;
  for (const ParameterUnit& unit : units_) total += unit.numel;
  return total;
}

void draw_initial_values(const ParameterSpec& spec, uint64_t seed, int64_t begin, double* values, int64_t count) {
  if (spec.init.kind != Initializer::Kind::normal) {
    std::fill(values, values + count, spec.init.kind == Initializer::Kind::ones ? 1.0 : 0.0);
    return;
  }
  const auto key = tensor::Philox::key(seed);
  const uint64_t stream = tensor::hash_name(spec.name);
  const int64_t end = begin + count;
  // One draw gives elements 2i and 2i + 1.
#pragma omp parallel for schedule(static) if (count > 4096)
  for (int64_t pair = begin / 2; pair < (end + 1) / 2; ++pair) {
    const auto draw = tensor::Philox::draw(tensor::Philox::counter(static_cast<uint64_t>(pair), stream), key);
    const auto normals = tensor::to_normals(draw);
    for (int64_t i = std::max(begin, 2 * pair); i < std::min(end, 2 * pair + 2); ++i) {
      values[i - begin] = spec.init.std * normals[static_cast<size_t>(i & 1)];
    }
  }
}

}  // namespace parallel
