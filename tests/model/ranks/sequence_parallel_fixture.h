#pragma once
/// The same model on ranks that share every sequence, alone or beside tensor-parallel and data-parallel ranks, and on
/// this rank alone.

#include "tests/model/ranks/tensor_parallel_fixture.h"

namespace tests {

using parallel::SpMethod;

/// 2 * 4 divides its sequences, and half of that times two tensor-parallel ranks.
inline model::ModelConfig sequence_shared(model::ModelConfig config) {
  config.seq_len = 32;
  return config;
}

/// Documents of these lengths again and again through all sequences, whose borders cut them: the last is longer than a
/// sequence, and one in six targets is ignored.
inline model::HostBatch batch_of_lengths(const model::ModelConfig& config, int64_t num_sequences, uint64_t seed) {
  model::HostBatch batch = random_batch(config, num_sequences, seed);
  const std::vector<int64_t> lengths = {1, 2, 3, 17, config.seq_len + 5};
  int64_t start = 0;
  for (size_t document = 0; start < std::ssize(batch.tokens); ++document) {
    const int64_t end = start + lengths[document % lengths.size()];
    for (int64_t i = start; i < std::min<int64_t>(end, std::ssize(batch.tokens)); ++i) {
      const int64_t sequence_begin = i / config.seq_len * config.seq_len;
      batch.document_start[static_cast<size_t>(i)] = static_cast<int32_t>(std::max<int64_t>(0, start - sequence_begin));
    }
    start = end;
  }
  return batch;
}

struct SequenceLayout {
  int tp = 1;
  int sp = 1;
  TokenSharding tokens = TokenSharding::whole;
};

/// One rank's view of tp * sp * dp ranks.
class SequenceMesh {
 public:
  SequenceMesh(const SequenceLayout& layout, SpMethod method, int64_t num_kv_heads,
               parallel::CommunicatorFactory& factory)
      : mesh_({.tp = layout.tp, .sp = layout.sp, .dp_in = mpi_environment().world_size() / layout.tp / layout.sp}),
        groups_(mesh_, mpi_environment().world_rank(), factory),
        kv_replicas_(
            factory.make("kv", parallel::kv_replica_ranks(mesh_, mpi_environment().world_rank(), num_kv_heads))),
        tensor_parallel_{groups_.at(parallel::Group::tp), *kv_replicas_, layout.tokens},
        data_parallel_{groups_.at(parallel::Group::zero), groups_.at(parallel::Group::dp_out)},
        sequence_parallel_{groups_.at(parallel::Group::sp), method} {}

  Sharing sharing(const parallel::ZeroOptions& zero = {}) const {
    return {&tensor_parallel_, &data_parallel_, zero, &sequence_parallel_};
  }
  parallel::Communicator& sp() const { return groups_.at(parallel::Group::sp); }
  parallel::Communicator& dp() const { return groups_.at(parallel::Group::dp); }

  /// Sum of the losses of all tokens of a batch.
  double total(double loss, tensor::Device& device) const {
    tensor::Tensor sum = make_tensor(device, {1}, tensor::Dtype::fp64, {loss});
    for (const parallel::Group group : {parallel::Group::dp, parallel::Group::sp}) {
      groups_.at(group).all_reduce(sum, parallel::Reduction::sum).wait();
    }
    return values_of(sum)[0];
  }

 private:
  parallel::Mesh mesh_;
  parallel::MeshCommunicators groups_;
  std::unique_ptr<parallel::Communicator> kv_replicas_;
  parallel::TensorParallel tensor_parallel_;
  parallel::DataParallel data_parallel_;
  parallel::SequenceParallel sequence_parallel_;
};

}  // namespace tests
