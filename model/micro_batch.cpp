#include "model/micro_batch.h"

#include <algorithm>

namespace model {

using parallel::SequencePart;
using parallel::TokenRange;
using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Tensor;

namespace {

template <class T>
Tensor upload(const std::vector<T>& host, tensor::Device& device) {
  Tensor x = device.allocate({std::ssize(host)}, tensor::dtype_of<T>, MemoryCategory::activations);
  device.copy_from_host(host.data(), x);
  return x;
}

/// Of values for whole sequences, those of the tokens that a rank holds.
template <class T>
std::vector<T> held(const std::vector<T>& whole, int64_t num_sequences, const SequencePart& part) {
  if (part.size == 1 || num_sequences == 0) return whole;
  const int64_t seq_len = std::ssize(whole) / num_sequences;
  std::vector<T> values;
  for (int64_t sequence = 0; sequence < num_sequences; ++sequence) {
    const auto first = whole.begin() + sequence * seq_len;
    for (const TokenRange& range : held_ranges(seq_len, part)) {
      values.insert(values.end(), first + range.begin, first + range.end);
    }
  }
  return values;
}

MicroBatch::Whole whole_sequences(const HostBatch& host, const std::vector<int32_t>& visible, int num_ranks,
                                  tensor::Device& device) {
  std::vector<int32_t> by_rank;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::vector<int32_t> of_rank = held(host.positions, host.num_sequences, {rank, num_ranks});
    by_rank.insert(by_rank.end(), of_rank.begin(), of_rank.end());
  }
  Tensor positions_by_rank =
      device.allocate({num_ranks, std::ssize(by_rank) / num_ranks}, Dtype::int32, MemoryCategory::activations);
  device.copy_from_host(by_rank.data(), positions_by_rank);
  return {upload(host.positions, device), upload(visible, device), std::move(positions_by_rank)};
}

}  // namespace

int32_t first_visible(int32_t position, int32_t document_start, int64_t sliding_window) {
  if (sliding_window == 0) return document_start;
  return static_cast<int32_t>(std::max<int64_t>(document_start, position - sliding_window + 1));
}

MicroBatch to_device(const HostBatch& host, int64_t sliding_window, const SequencePart& part, tensor::Device& device) {
  std::vector<int32_t> visible(host.positions.size());
  for (size_t i = 0; i < visible.size(); ++i) {
    visible[i] = first_visible(host.positions[i], host.document_start[i], sliding_window);
  }
  const auto upload_held = [&](const auto& whole) { return upload(held(whole, host.num_sequences, part), device); };
  MicroBatch batch;
  batch.num_sequences = host.num_sequences;
  batch.tokens = upload_held(host.tokens);
  batch.targets = upload_held(host.targets);
  batch.positions = upload_held(host.positions);
  batch.first_visible = upload_held(visible);
  batch.token_index = upload_held(host.token_index);
  if (part.size > 1) batch.whole = whole_sequences(host, visible, part.size, device);
  return batch;
}

}  // namespace model
