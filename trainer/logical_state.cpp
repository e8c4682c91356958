#include "trainer/logical_state.h"

#include <nlohmann/json.hpp>

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

void send_numbers(const std::vector<int64_t>& numbers, parallel::Communicator& world, tensor::Device& device) {
  Tensor x = device.allocate({std::ssize(numbers)}, Dtype::int64, MemoryCategory::other);
  device.copy_from_host(numbers.data(), x);
  world.send(x, 0).wait();
}

Tensor receive(parallel::Communicator& world, int from, int64_t count, Dtype dtype, tensor::Device& device) {
  Tensor x = device.allocate({count}, dtype, MemoryCategory::other);
  world.receive(x, from).wait();
  return x;
}

std::vector<int64_t> receive_numbers(parallel::Communicator& world, int from, int64_t count, tensor::Device& device) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  device.copy_to_host(receive(world, from, count, Dtype::int64, device), numbers.data());
  return numbers;
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

tensor::Shape shape_of(const std::vector<int64_t>& sizes) {
  tensor::Shape shape = sizes.size() == 1   ? tensor::Shape{sizes[0]}
                        : sizes.size() == 2 ? tensor::Shape{sizes[0], sizes[1]}
                                            : tensor::Shape{sizes[0], sizes[1], sizes[2]};
  return shape;
}

std::vector<int64_t> sizes_of(const tensor::Shape& shape) {
  std::vector<int64_t> sizes;
  for (int dim = 0; dim < shape.num_dims(); ++dim) sizes.push_back(shape[dim]);
  return sizes;
}

}  // namespace

LogicalState::LogicalState(std::vector<StateFragment> fragments, const parallel::ParameterStore& store,
                           parallel::Communicator& world, tensor::Device& device)
    : fragments_(std::move(fragments)), store_(store), world_(world), device_(device) {
  const Entries own = own_entries();
  if (!is_root()) {
    send_entries(own);
    return;
  }
  of_ranks_.push_back(own);
  for (int rank = 1; rank < world_.size(); ++rank) of_ranks_.push_back(receive_entries(rank));
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

void LogicalState::send_entries(const Entries& entries) {
  std::vector<nlohmann::json> list;
  for (const Entry& e : entries) list.push_back({e.name, static_cast<int>(e.dtype), sizes_of(e.shape), e.owned});
  const std::vector<uint8_t> bytes = nlohmann::json::to_cbor(nlohmann::json(list));
  std::vector<int64_t> words((bytes.size() + sizeof(int64_t) - 1) / sizeof(int64_t), 0);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(words.data()));
  send_numbers({std::ssize(bytes), std::ssize(words)}, world_, device_);
  send_numbers(words, world_, device_);
}

LogicalState::Entries LogicalState::receive_entries(int rank) {
  const std::vector<int64_t> sizes = receive_numbers(world_, rank, 2, device_);
  const std::vector<int64_t> words = receive_numbers(world_, rank, sizes[1], device_);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(words.data());
  Entries entries;
  for (const auto& e : nlohmann::json::from_cbor(bytes, bytes + sizes[0])) {
    entries.push_back({.name = e[0],
                       .dtype = static_cast<Dtype>(e[1].get<int>()),
                       .shape = shape_of(e[2].get<std::vector<int64_t>>()),
                       .owned = e[3].get<Runs>()});
  }
  return entries;
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
