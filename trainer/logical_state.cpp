#include "trainer/logical_state.h"

#include "checkpoint/tensor_row.h"
#include "checkpoint/wire.h"

namespace trainer {

using parallel::Range;
using parallel::StoredRun;
using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Tensor;

namespace {

/// This fragment is all there is of the tensor: on one rank, everything is.
bool is_whole(const StateFragment& fragment) {
  const parallel::ParameterSpec& spec = fragment.parameter->spec();
  return spec.stored_shape() == spec.shape && fragment.range.size() == spec.shape.numel();
}

std::vector<int64_t> encode(const std::vector<StoredRun>& runs) {
  std::vector<int64_t> numbers;
  for (const StoredRun& run : runs) numbers.insert(numbers.end(), {run.global_begin, run.count});
  return numbers;
}

int64_t count_of(const std::vector<int64_t>& runs) {
  int64_t count = 0;
  for (size_t i = 1; i < runs.size(); i += 2) count += runs[i];
  return count;
}

Tensor receive(parallel::Communicator& world, int from, int64_t count, Dtype dtype, tensor::Device& device) {
  Tensor x = device.allocate({count}, dtype, MemoryCategory::other);
  world.receive(x, from).wait();
  return x;
}

/// Calls visit(part of the flat whole, part of the values) for every run; values hold the runs one after another.
template <class Visit>
void for_each_run(const std::vector<int64_t>& runs, const Tensor& values, const Tensor& whole, const Visit& visit) {
  const Tensor flat = whole.reshaped({whole.numel()});
  int64_t taken = 0;
  for (size_t i = 0; i < runs.size(); i += 2) {
    Tensor of_whole = flat.rows(runs[i], runs[i] + runs[i + 1]);
    Tensor of_values = values.rows(taken, taken + runs[i + 1]);
    visit(of_whole, of_values);
    taken += runs[i + 1];
  }
}

}  // namespace

LogicalState::LogicalState(std::vector<StateFragment> fragments, const parallel::ParameterStore& store,
                           parallel::Communicator& world, tensor::Device& device)
    : fragments_(std::move(fragments)), store_(store), world_(world), device_(device) {
  const Entries own = own_entries();
  of_ranks_ = gather_entries(own);
  if (!is_root()) return;
  for (size_t i = 0; i < own.size(); ++i) make_whole(own[i], is_whole(fragments_[i]) ? &fragments_[i].values : nullptr);
  for (const Entries& entries : of_ranks_) {
    for (const Entry& entry : entries) make_whole(entry, nullptr);
  }
}

void LogicalState::make_whole(const Entry& entry, const Tensor* own) {
  if (whole_.contains(entry.name)) return;
  whole_[entry.name] =
      own ? own->reshaped(entry.shape) : device_.allocate(entry.shape, entry.dtype, MemoryCategory::other);
}

// ---- who has what

LogicalState::Entries LogicalState::own_entries() const {
  Entries entries;
  for (const StateFragment& fragment : fragments_) {
    const parallel::ParameterSpec& spec = fragment.parameter->spec();
    entries.push_back({.name = fragment.kind + "/" + spec.name,
                       .dtype = fragment.values.dtype(),
                       .shape = spec.shape,
                       .owned = encode(logical_runs(spec, store_.owned_range(*fragment.parameter)))});
  }
  return entries;
}

std::vector<LogicalState::Entries> LogicalState::gather_entries(const Entries& own) const {
  nlohmann::json rows = nlohmann::json::array();
  for (const Entry& e : own) rows.push_back({checkpoint::to_row({e.name, e.dtype, e.shape}), e.owned});
  std::vector<Entries> of_ranks;
  for (const std::string& text : checkpoint::Wire(world_, device_).gather(rows.dump())) {
    of_ranks.emplace_back();
    for (const auto& row : nlohmann::json::parse(text)) {
      const checkpoint::TensorInfo info = checkpoint::from_row(row[0]);
      of_ranks.back().push_back({info.name, info.dtype, info.shape, row[1].get<Runs>()});
    }
  }
  return of_ranks;
}

// ---- values

/// Elements `range` of the stored box, without padding, one run after another.
Tensor LogicalState::packed(const StateFragment& fragment, const Range& range) const {
  const std::vector<StoredRun> runs = logical_runs(fragment.parameter->spec(), range);
  Tensor values = device_.allocate({count_of(encode(runs))}, fragment.values.dtype(), MemoryCategory::other);
  int64_t filled = 0;
  for (const StoredRun& run : runs) {
    const int64_t begin = run.stored_begin - fragment.range.begin;
    Tensor to = values.rows(filled, filled + run.count);
    device_.copy(fragment.values.rows(begin, begin + run.count), to);
    filled += run.count;
  }
  return values;
}

void LogicalState::gather() {
  if (!is_root()) {
    for (const StateFragment& fragment : fragments_) {
      const Tensor values = packed(fragment, store_.owned_range(*fragment.parameter));
      if (values.numel() > 0) world_.send(values, 0).wait();
    }
    return;
  }
  const auto place = [&](const Entry& entry, const Tensor& values) {
    for_each_run(entry.owned, values, whole_.at(entry.name),
                 [&](Tensor& of_whole, Tensor& of_values) { device_.copy(of_values, of_whole); });
  };
  for (size_t i = 0; i < fragments_.size(); ++i) {
    if (is_whole(fragments_[i])) continue;
    place(of_ranks_[0][i], packed(fragments_[i], store_.owned_range(*fragments_[i].parameter)));
  }
  for (int rank = 1; rank < world_.size(); ++rank) {
    for (const Entry& entry : of_ranks_[static_cast<size_t>(rank)]) {
      const int64_t count = count_of(entry.owned);
      if (count > 0) place(entry, receive(world_, rank, count, entry.dtype, device_));
    }
  }
}

std::vector<checkpoint::NamedTensor> LogicalState::tensors() {
  std::vector<checkpoint::NamedTensor> named;
  for (auto& [name, whole] : whole_) named.push_back({name, &whole});
  return named;
}

}  // namespace trainer
