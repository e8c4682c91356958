#include "trainer/rank_context.h"

#include <algorithm>

#include "model/layout.h"
#include "parallel/layout.h"
#include "trainer/batch_split.h"

namespace trainer {

using parallel::Group;
using parallel::throw_if_any;

namespace {

parallel::TokenSharding token_sharding(const Config& config) {
  return config.parallel.tp_sequence ? parallel::TokenSharding::sharded : parallel::TokenSharding::whole;
}

/// Every data-parallel rank works on the same number of micro-batches. Whether there was a problem.
bool batch_problems(const Config& config, const parallel::Degrees& degrees,
                    std::vector<parallel::LayoutProblem>& problems) {
  const int64_t batch = config.train.global_batch_size;
  const int64_t micro = std::max<int64_t>(1, config.train.micro_batch_size);
  const int64_t grain = micro * degrees.dp();
  if (batch % grain == 0) return false;
  const int64_t below = std::max(grain, batch / grain * grain);
  problems.push_back(
      {"train.global_batch_size",
       fmt::format(
           "train.global_batch_size = {} is not a multiple of {} data-parallel ranks * train.micro_batch_size = "
           "{}.\n  Every data-parallel rank works on the same number of sequences.\n  Fix: use {} or {}.",
           batch, degrees.dp(), micro, below, below + grain)});
  return true;
}

parallel::Mesh make_mesh(const Config& config, int world_size) {
  parallel::ResolvedLayout layout = parallel::resolve_layout(config.parallel, world_size);
  throw_if_any(layout.problems);
  std::vector<parallel::LayoutProblem> problems =
      model::layout_problems(config.model, layout.degrees, token_sharding(config), config.parallel.sp_method);
  if (!batch_problems(config, layout.degrees, problems)) {
    const int64_t num_microbatches = split_batch(config, layout.degrees.dp()).num_microbatches;
    const auto of_pipeline = pipeline_problems(config, layout.degrees, num_microbatches);
    problems.insert(problems.end(), of_pipeline.begin(), of_pipeline.end());
  }
  throw_if_any(problems);
  return parallel::Mesh(layout.degrees);
}

}  // namespace

RankContext::RankContext(const Config& config, int world_rank, int world_size, parallel::CommunicatorFactory& factory,
                         const RankRecords& records)
    : mesh_(make_mesh(config, world_size)),
      rank_(world_rank),
      pipeline_(config, mesh_.degrees()),
      groups_(mesh_, world_rank, factory),
      kv_replicas_(factory.make("kv_replicas", kv_replica_ranks(mesh_, world_rank, config.model.kv_heads()))),
      tied_(factory.make("tied", pipeline_.tied_ranks(mesh_, world_rank))),
      token_sharding_(token_sharding(config)),
      sp_method_(config.parallel.sp_method),
      records_(records) {}

parallel::DataParallel RankContext::data_parallel() const { return {group(Group::zero), group(Group::dp_out)}; }

parallel::LayerGroups RankContext::layer_groups() const {
  return {.tensor = {group(Group::tp), *kv_replicas_, token_sharding_},
          .sequence = {group(Group::sp), sp_method_},
          .expert = {.ep = group(Group::ep),
                     .expert_tp = group(Group::expert_tp),
                     .sequence = group(Group::tp_sp),
                     .data = {group(Group::expert_dp_in), group(Group::dp_out)}}};
}

}  // namespace trainer
