#include "trainer/logical_state.h"

namespace trainer {

using parallel::Parameter;
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

/// Runs on the wire: global begin and count of each.
std::vector<int64_t> encode(const std::vector<StoredRun>& runs) {
  std::vector<int64_t> numbers;
  for (const StoredRun& run : runs) numbers.insert(numbers.end(), {run.global_begin, run.count});
  return numbers;
}

Tensor upload(const std::vector<int64_t>& numbers, tensor::Device& device) {
  Tensor x = device.allocate({std::ssize(numbers)}, Dtype::int64, MemoryCategory::other);
  device.copy_from_host(numbers.data(), x);
  return x;
}

std::vector<int64_t> download(const Tensor& x) {
  std::vector<int64_t> numbers(static_cast<size_t>(x.numel()));
  x.device().copy_to_host(x, numbers.data());
  return numbers;
}

Tensor receive(parallel::Communicator& world, int from, int64_t count, Dtype dtype, tensor::Device& device) {
  Tensor x = device.allocate({count}, dtype, MemoryCategory::other);
  world.receive(x, from).wait();
  return x;
}

/// Puts values, the runs one after another, where they belong in the flat whole tensor.
void place(const std::vector<int64_t>& runs, const Tensor& values, Tensor& whole) {
  Tensor flat = whole.reshaped({whole.numel()});
  int64_t taken = 0;
  for (size_t i = 0; i < runs.size(); i += 2) {
    Tensor to = flat.rows(runs[i], runs[i] + runs[i + 1]);
    whole.device().copy(values.rows(taken, taken + runs[i + 1]), to);
    taken += runs[i + 1];
  }
}

}  // namespace

LogicalState::LogicalState(std::vector<StateFragment> fragments, const parallel::ParameterStore& store,
                           parallel::Communicator& world)
    : fragments_(std::move(fragments)), store_(store), world_(world) {
  if (!is_root()) return;
  for (const StateFragment& fragment : fragments_) {
    const tensor::Shape& shape = fragment.parameter->spec().shape;
    const Tensor& values = fragment.values;
    whole_.push_back(std::make_unique<Tensor>(
        is_whole(fragment) ? values.reshaped(shape)
                           : values.device().allocate(shape, values.dtype(), MemoryCategory::other)));
  }
}

void LogicalState::gather() {
  Tensor nothing;
  for (size_t i = 0; i < fragments_.size(); ++i) gather(fragments_[i], is_root() ? *whole_[i] : nothing);
}

void LogicalState::scatter() {
  Tensor nothing;
  for (size_t i = 0; i < fragments_.size(); ++i) scatter(fragments_[i], is_root() ? *whole_[i] : nothing);
}

/// The elements that this rank counts, without padding, one run after another.
Tensor LogicalState::owned_values(const StateFragment& fragment) const {
  const std::vector<StoredRun> runs = logical_runs(fragment.parameter->spec(), store_.owned_range(*fragment.parameter));
  int64_t count = 0;
  for (const StoredRun& run : runs) count += run.count;
  Tensor packed = fragment.values.device().allocate({count}, fragment.values.dtype(), MemoryCategory::other);
  int64_t filled = 0;
  for (const StoredRun& run : runs) {
    const int64_t begin = run.stored_begin - fragment.range.begin;
    Tensor to = packed.rows(filled, filled + run.count);
    packed.device().copy(fragment.values.rows(begin, begin + run.count), to);
    filled += run.count;
  }
  return packed;
}

void LogicalState::gather(const StateFragment& fragment, Tensor& whole) {
  tensor::Device& device = fragment.values.device();
  const auto& spec = fragment.parameter->spec();
  const std::vector<int64_t> runs = encode(logical_runs(spec, store_.owned_range(*fragment.parameter)));
  const bool is_in_place = is_root() && is_whole(fragment);
  const Tensor values = is_in_place ? Tensor() : owned_values(fragment);
  if (!is_root()) {
    world_.send(upload({std::ssize(runs), values.numel()}, device), 0).wait();
    world_.send(upload(runs, device), 0).wait();
    world_.send(values, 0).wait();
    return;
  }
  if (!is_in_place) place(runs, values, whole);
  for (int rank = 1; rank < world_.size(); ++rank) {
    const std::vector<int64_t> sizes = download(receive(world_, rank, 2, Dtype::int64, device));
    const std::vector<int64_t> their_runs = download(receive(world_, rank, sizes[0], Dtype::int64, device));
    place(their_runs, receive(world_, rank, sizes[1], fragment.values.dtype(), device), whole);
  }
}

void LogicalState::scatter(StateFragment& fragment, Tensor& whole) {
  tensor::Device& device = fragment.values.device();
  const auto& spec = fragment.parameter->spec();
  Tensor received;
  if (!is_root()) received = device.allocate(spec.shape, fragment.values.dtype(), MemoryCategory::other);
  Tensor& here = is_root() ? whole : received;
  world_.broadcast(here, 0).wait();
  if (is_root() && is_whole(fragment)) return;
  const Tensor flat = here.reshaped({here.numel()});
  for (const StoredRun& run : logical_runs(spec, fragment.range)) {
    const int64_t begin = run.stored_begin - fragment.range.begin;
    Tensor to = fragment.values.rows(begin, begin + run.count);
    device.copy(flat.rows(run.global_begin, run.global_begin + run.count), to);
  }
}

std::vector<checkpoint::NamedTensor> LogicalState::tensors() const {
  std::vector<checkpoint::NamedTensor> named;
  for (size_t i = 0; i < whole_.size(); ++i) {
    named.push_back({fragments_[i].kind + "/" + fragments_[i].parameter->name(), whole_[i].get()});
  }
  return named;
}

}  // namespace trainer
