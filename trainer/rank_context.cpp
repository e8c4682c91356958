#include "trainer/rank_context.h"

#include "parallel/layout.h"

namespace trainer {

using parallel::Group;

namespace {

parallel::Mesh make_mesh(const Config& config, int world_size) {
  parallel::ResolvedLayout layout = parallel::resolve_layout(config.parallel, world_size);
  throw_if_any(layout.problems);
  throw_if_any(layout_problems(config, layout.degrees));
  return parallel::Mesh(layout.degrees);
}

}  // namespace

RankContext::RankContext(const Config& config, int world_rank, int world_size, parallel::CommunicatorFactory& factory,
                         parallel::Ledger& ledger)
    : mesh_(make_mesh(config, world_size)),
      rank_(world_rank),
      groups_(mesh_, world_rank, factory),
      kv_replicas_(factory.make("kv_replicas", kv_replica_ranks(mesh_, world_rank, config.model.kv_heads()))),
      token_sharding_(config.parallel.tp_sequence ? parallel::TokenSharding::sharded : parallel::TokenSharding::whole),
      ledger_(ledger) {}

parallel::DataParallel RankContext::data_parallel() const { return {group(Group::zero), group(Group::dp_out)}; }

parallel::TensorParallel RankContext::tensor_parallel() const {
  return {group(Group::tp), *kv_replicas_, token_sharding_};
}

}  // namespace trainer
