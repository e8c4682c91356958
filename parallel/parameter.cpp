#include "parallel/parameter.h"

#include <algorithm>

#include "parallel/parameter_store.h"
#include "tensor/philox.h"

namespace parallel {

using tensor::Tensor;

namespace {

/// The parts of a fused parameter as one tensor: they were registered one after another, so they lie back to back.
Tensor join(const std::vector<Tensor>& parts) {
  if (parts.empty()) return {};
  int64_t rows = 0;
  const char* end = static_cast<const char*>(parts.front().raw());
  for (const Tensor& part : parts) {
    CHECK(part.raw() == end, "the parts of a fused parameter are registered one after another");
    end += part.bytes();
    rows += part.dim(0);
  }
  const Tensor& first = parts.front();
  return Tensor::view_of(first.raw(), first.shape().with(0, rows), first.dtype(), first.device());
}

/// Calls visit(run) for every run of the stored box; padding is in none.
template <class Visit>
void for_each_run(const ParameterSpec& spec, const Visit& visit) {
  if (!spec.slice) return visit(StoredRun{0, 0, spec.shape.numel()});
  const Slice& slice = *spec.slice;
  const int64_t held = slice.end - slice.begin;
  if (slice.dim == 0) {
    const int64_t row = spec.shape.row_numel();
    return visit(StoredRun{0, slice.begin * row, held * row});
  }
  CHECK(slice.dim == 1 && spec.shape.num_dims() == 2, "{} is cut along its rows or its columns", spec.name);
  for (int64_t row = 0; row < spec.shape[0]; ++row) {
    visit(StoredRun{row * slice.stored, row * spec.shape[1] + slice.begin, held});
  }
}

}  // namespace

Slice equal_slice(int dim, int64_t extent, int rank, int size) {
  const int64_t stored = (extent + size - 1) / size;
  const int64_t begin = std::min(extent, stored * rank);
  return {.dim = dim, .begin = begin, .end = std::min(extent, begin + stored), .stored = stored};
}

Tensor Parameter::value() const {
  CHECK(unit_->values, "{} is in use while its value is read", name());
  return unit_->values.rows(offset_, offset_ + stored_numel()).reshaped(spec_.stored_shape());
}

Tensor Parameter::grad() const {
  return unit_->grads_to_write().rows(offset_, offset_ + stored_numel()).reshaped(spec_.stored_shape());
}

Tensor FusedParameter::value() const {
  std::vector<Tensor> values;
  for (const Parameter* part : parts) values.push_back(part->value());
  return join(values);
}

Tensor FusedParameter::grad() const {
  std::vector<Tensor> grads;
  for (const Parameter* part : parts) grads.push_back(part->grad());
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

std::vector<StoredRun> logical_runs(const ParameterSpec& spec, const Range& range) {
  std::vector<StoredRun> runs;
  for_each_run(spec, [&](const StoredRun& run) {
    const int64_t begin = std::max(range.begin, run.stored_begin);
    const int64_t end = std::min(range.end, run.stored_begin + run.count);
    if (begin < end) runs.push_back({begin, run.global_begin + begin - run.stored_begin, end - begin});
  });
  return runs;
}

std::vector<double> draw_stored_values(const ParameterSpec& spec, uint64_t seed, const Range& range) {
  std::vector<double> values(static_cast<size_t>(range.size()), 0.0);
  for (const StoredRun& run : logical_runs(spec, range)) {
    draw_initial_values(spec, seed, run.global_begin, values.data() + run.stored_begin - range.begin, run.count);
  }
  return values;
}

}  // namespace parallel
