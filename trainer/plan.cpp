#include "trainer/plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "model/flops.h"
#include "parallel/layout.h"
#include "parallel/tensor_parallel.h"
#include "trainer/fnv.h"

namespace trainer {

using parallel::Group;

namespace {

void check_rank(int rank, int world_size) {
  if (0 <= rank && rank < world_size) return;
  throw tensor::LayoutError(fmt::format("There is no rank {} in a world of {} ranks.\n  Fix: use 0 to {}.", rank,
                                        world_size, world_size - 1));
}

/// "0, 8, ..., 120": the first two and the last of many that lie evenly, all of a few.
std::string describe(const std::vector<int>& ranks) {
  const auto list = [](auto begin, auto end) {
    std::string text;
    for (auto it = begin; it != end; ++it) text += (text.empty() ? "" : ", ") + std::to_string(*it);
    return text;
  };
  constexpr std::ptrdiff_t kAllOf = 8, kFirst = 4;
  if (std::ssize(ranks) <= kAllOf) return list(ranks.begin(), ranks.end());
  std::vector<int> steps(ranks.size());
  std::adjacent_difference(ranks.begin(), ranks.end(), steps.begin());
  const bool is_even = std::all_of(steps.begin() + 1, steps.end(), [&](int step) { return step == steps[1]; });
  return list(ranks.begin(), ranks.begin() + (is_even ? 2 : kFirst)) + ", ..., " + std::to_string(ranks.back());
}

/// Kinds of groups with the same ranks are one group: they share a connection.
std::vector<PlannedGroup> groups_of(const parallel::Mesh& mesh, int rank, int64_t num_kv_heads) {
  std::vector<std::vector<int>> seen;
  std::vector<PlannedGroup> groups;
  const auto add = [&](const std::string& name, const std::vector<int>& ranks) {
    if (ranks.size() == 1) return;
    const auto found = std::find(seen.begin(), seen.end(), ranks);
    if (found != seen.end()) return groups[static_cast<size_t>(found - seen.begin())].names.push_back(name);
    seen.push_back(ranks);
    groups.push_back({{name}, static_cast<int>(ranks.size()), describe(ranks)});
  };
  for (int i = 0; i < parallel::kNumGroups; ++i) {
    const auto kind = static_cast<Group>(i);
    add(to_string(kind), mesh.group(kind, rank));
  }
  add("kv_replicas", kv_replica_ranks(mesh, rank, num_kv_heads));
  return groups;
}

}  // namespace

Plan make_plan(const Config& config, int world_size, int rank) {
  check_rank(rank, world_size);
  const DryRun run = dry_run(config, world_size, rank);
  const parallel::Mesh mesh(parallel::resolve_layout(config.parallel, world_size).degrees);
  return {.world_size = world_size,
          .rank = rank,
          .degrees = mesh.degrees(),
          .groups = groups_of(mesh, rank, config.model.kv_heads()),
          .zero_stage = config.parallel.zero_stage,
          .compute = config.precision.compute,
          .num_parameters = model::parameter_count(config.model),
          .global_batch_size = config.train.global_batch_size,
          .seq_len = config.model.seq_len,
          .split = split_batch(config, mesh.degrees().dp()),
          .pipeline = run.pipeline,
          .units = run.units,
          .total = run.total,
          .memory = run.memory,
          .bill = run.bill};
}

int default_world_size(const parallel::ParallelConfig& config) {
  constexpr int64_t kMost = 1 << 20;  // of one degree; more is an error that resolve_layout() words
  int64_t world = 1;
  for (const int64_t degree : {config.tp, config.sp, config.pp, config.dp > 0 ? config.dp : config.dp_out}) {
    world = std::min(kMost, world * std::clamp<int64_t>(degree, 1, kMost));
  }
  return static_cast<int>(world);
}

parallel::Bill planned_bill(const Config& config, int world_size, int rank) {
  return dry_run(config, world_size, rank).bill;
}

std::string plan_hash(const Plan& plan) { return fmt::format("{:016x}", fnv1a(to_json(plan))); }

}  // namespace trainer
