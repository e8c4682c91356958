#include "model/micro_batch.h"

#include <algorithm>

namespace model {

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

}  // namespace

int32_t first_visible(int32_t position, int32_t document_start, int64_t sliding_window) {
  if (sliding_window == 0) return document_start;
  return static_cast<int32_t>(std::max<int64_t>(document_start, position - sliding_window + 1));
}

MicroBatch to_device(const HostBatch& host, int64_t sliding_window, tensor::Device& device) {
  std::vector<int32_t> visible(host.positions.size());
  for (size_t i = 0; i < visible.size(); ++i) {
    visible[i] = first_visible(host.positions[i], host.document_start[i], sliding_window);
  }
  MicroBatch batch;
  batch.num_sequences = host.num_sequences;
  batch.tokens = upload(host.tokens, device);
  batch.targets = upload(host.targets, device);
  batch.positions = upload(host.positions, device);
  batch.first_visible = upload(visible, device);
  batch.token_index = upload(host.token_index, device);
  return batch;
}

}  // namespace model
