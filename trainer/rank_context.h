#pragma once
/// Where this rank stands: the mesh, its place in it, and the groups it talks in. Made once, before the model.

#include <memory>

#include "model/config.h"
#include "parallel/communicator_factory.h"
#include "parallel/event_log.h"
#include "parallel/layer_groups.h"
#include "parallel/ledger.h"
#include "parallel/parameter_store.h"
#include "trainer/pipeline_plan.h"

namespace trainer {

/// Where a rank writes down what it does. Borrowed.
struct RankRecords {
  parallel::Ledger& ledger;
  parallel::EventLog* events = nullptr;  ///< null: times are not asked for
};

class RankContext {
 public:
  /// All ranks of the factory's world make theirs together. LayoutError where config and world do not fit.
  RankContext(const Config& config, int world_rank, int world_size, parallel::CommunicatorFactory& factory,
              const RankRecords& records);

  const parallel::Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }           ///< of the world
  bool is_root() const { return rank_ == 0; }  ///< the rank that logs and writes files
  parallel::Communicator& group(parallel::Group group) const { return groups_.at(group); }
  parallel::Communicator& world() const { return group(parallel::Group::world); }
  parallel::Ledger& ledger() const { return records_.ledger; }
  parallel::EventLog* events() const { return records_.events; }
  const PipelinePlan& pipeline() const { return pipeline_; }

  int data_rank() const { return group(parallel::Group::dp).rank(); }  ///< whose part of each batch this rank reads
  int num_data_ranks() const { return group(parallel::Group::dp).size(); }

  parallel::Communicator& tied() const { return *tied_; }  ///< first and last stage, where they share a table
  parallel::DataParallel data_parallel() const;
  parallel::LayerGroups layer_groups() const;

 private:
  parallel::Mesh mesh_;
  int rank_;
  PipelinePlan pipeline_;
  parallel::MeshCommunicators groups_;
  std::unique_ptr<parallel::Communicator> kv_replicas_;
  std::unique_ptr<parallel::Communicator> tied_;
  parallel::TokenSharding token_sharding_;
  parallel::SpMethod sp_method_;
  RankRecords records_;
};

/// A world of one rank, without a launcher.
struct OneRank {
  explicit OneRank(const Config& config) : context(config, 0, 1, factory, {.ledger = ledger}) {}

  parallel::Ledger ledger;
  parallel::SelfCommunicatorFactory factory;
  RankContext context;
};

}  // namespace trainer
