#pragma once
/// Where this rank stands: the mesh, its place in it, and the groups it talks in. Made once, before the model.

#include <memory>

#include "model/config.h"
#include "parallel/communicator_factory.h"
#include "parallel/ledger.h"
#include "parallel/parameter_store.h"
#include "parallel/tensor_parallel.h"
#include "trainer/config.h"

namespace trainer {

class RankContext {
 public:
  /// All ranks of the factory's world make theirs together. LayoutError where config and world do not fit.
  RankContext(const Config& config, int world_rank, int world_size, parallel::CommunicatorFactory& factory,
              parallel::Ledger& ledger);

  const parallel::Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }           ///< of the world
  bool is_root() const { return rank_ == 0; }  ///< the rank that logs and writes files
  parallel::Communicator& group(parallel::Group group) const { return groups_.at(group); }
  parallel::Communicator& world() const { return group(parallel::Group::world); }
  parallel::Ledger& ledger() const { return ledger_; }

  int data_rank() const { return group(parallel::Group::dp).rank(); }  ///< whose part of each batch this rank reads
  int num_data_ranks() const { return group(parallel::Group::dp).size(); }

  parallel::DataParallel data_parallel() const;
  parallel::TensorParallel tensor_parallel() const;

 private:
  parallel::Mesh mesh_;
  int rank_;
  parallel::MeshCommunicators groups_;
  std::unique_ptr<parallel::Communicator> kv_replicas_;
  parallel::TokenSharding token_sharding_;
  parallel::Ledger& ledger_;
};

/// A world of one rank, without a launcher.
struct OneRank {
  explicit OneRank(const Config& config) : context(config, 0, 1, factory, ledger) {}

  parallel::Ledger ledger;
  parallel::SelfCommunicatorFactory factory;
  RankContext context;
};

}  // namespace trainer
