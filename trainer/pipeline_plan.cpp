#include "trainer/pipeline_plan.h"

#include <fmt/format.h>

#include <numeric>

#include "trainer/batch_split.h"

namespace trainer {

using parallel::LayoutProblem;
using parallel::Reshard;
using parallel::ScheduleSettings;
using parallel::ZeroActions;

namespace {

ScheduleSettings settings_of(const parallel::ParallelConfig& config, int num_ranks, int64_t num_microbatches) {
  return {.name = config.schedule,
          .num_ranks = num_ranks,
          .num_microbatches = static_cast<int>(num_microbatches),
          .virtual_stages = static_cast<int>(config.virtual_stages),
          .microbatch_group = static_cast<int>(config.microbatch_group)};
}

/// What the parameter store leaves to the schedule.
ZeroActions zero_actions(const parallel::ParallelConfig& config) {
  using Gather = ZeroActions::Gather;
  using Reduce = ZeroActions::Reduce;
  const bool is_by_stage = config.zero_reshard == Reshard::stage;
  const bool reduces_often = config.zero_stage >= 2 || config.reduce_every == parallel::ReduceEvery::micro_batch;
  return {.gather = config.zero_stage == 3 && is_by_stage ? Gather::per_run : Gather::per_pass,
          .reduce = !reduces_often ? Reduce::per_step
                    : is_by_stage  ? Reduce::per_run
                                   : Reduce::per_pass};
}

std::string list_of(const std::vector<int64_t>& numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); }

std::vector<LayoutProblem> stage_problems(const Config& config, const parallel::Degrees& degrees) {
  const std::vector<int64_t>& stages = config.parallel.stages;
  if (stages.empty()) return {};
  const int64_t per_rank = config.parallel.virtual_stages > 0
                               ? config.parallel.virtual_stages
                               : parallel::default_virtual_stages(config.parallel.schedule);
  const int64_t num_stages = degrees.pp * per_rank;
  std::vector<LayoutProblem> problems;
  if (std::ssize(stages) != num_stages) {
    problems.push_back({"parallel.stages",
                        fmt::format("parallel.stages = {} lists {} stages, but pp * virtual_stages = {} * {} = {}.\n"
                                    "  It says how many layers each stage has, in order.\n"
                                    "  Fix: list {} numbers, or leave parallel.stages out.",
                                    list_of(stages), stages.size(), degrees.pp, per_rank, num_stages, num_stages)});
  }
  const int64_t sum = std::accumulate(stages.begin(), stages.end(), int64_t{0});
  if (sum != config.model.num_layers) {
    problems.push_back(
        {"parallel.stages", fmt::format("parallel.stages = {} adds up to {} layers, but model.num_layers = {}.\n"
                                        "  Every layer is on one stage.\n"
                                        "  Fix: make the numbers add up to {}, or leave parallel.stages out.",
                                        list_of(stages), sum, config.model.num_layers, config.model.num_layers)});
  }
  return problems;
}

}  // namespace

std::vector<LayoutProblem> pipeline_problems(const Config& config, const parallel::Degrees& degrees,
                                             int64_t num_microbatches) {
  std::vector<LayoutProblem> problems = schedule_problems(settings_of(config.parallel, degrees.pp, num_microbatches));
  if (problems.empty()) problems = stage_problems(config, degrees);
  return problems;
}

PipelinePlan::PipelinePlan(const Config& config, const parallel::Degrees& degrees)
    : config_(config.parallel),
      num_ranks_(degrees.pp),
      rank_of_stage_(make_schedule(settings(split_batch(config, degrees.dp()).num_microbatches)).rank_of_stage),
      part_costs_(model::part_costs(config.model)) {
  const auto num_stages = static_cast<int>(rank_of_stage_.size());
  spans_ = config_.stages.empty() ? partition_layers(part_costs_, num_stages) : model::spans_of(config_.stages);
  ties_ranks_ = config.model.tie_embeddings && rank_of_stage_.front() != rank_of_stage_.back();
}

std::vector<int> PipelinePlan::tied_ranks(const parallel::Mesh& mesh, int rank) const {
  const std::vector<int> pipeline = mesh.group(parallel::Group::pp, rank);
  const int first = pipeline[static_cast<size_t>(rank_of_stage_.front())];
  const int last = pipeline[static_cast<size_t>(rank_of_stage_.back())];
  if (!ties_ranks_ || (rank != first && rank != last)) return {rank};
  return {first, last};
}

ScheduleSettings PipelinePlan::settings(int64_t num_microbatches) const {
  return settings_of(config_, num_ranks_, num_microbatches);
}

/// In units of the mean stage's forward, which takes as long as each half of its backward.
parallel::SimulationOptions PipelinePlan::costs() const {
  double sum = 0;
  for (const model::StageSpan& span : spans_) sum += span_cost(part_costs_, span);
  parallel::SimulationOptions options;
  for (const model::StageSpan& span : spans_) {
    options.forward.push_back(span_cost(part_costs_, span) / sum * static_cast<double>(spans_.size()));
  }
  options.backward_input = options.backward_weight = options.forward;
  return options;
}

const PipelinePlan::Training& PipelinePlan::training(int64_t num_microbatches) const {
  const auto found = trainings_.find(num_microbatches);
  if (found != trainings_.end()) return found->second;
  Training plan = passes(num_microbatches);
  const auto tied = ties_ranks_ ? parallel::SharedTable::first_and_last_stage : parallel::SharedTable::none;
  plan.schedule = add_step(add_messages(add_zero_actions(plan.schedule, zero_actions(config_))), tied);
  return trainings_[num_microbatches] = std::move(plan);
}

PipelinePlan::Training PipelinePlan::passes(int64_t num_microbatches) const {
  parallel::Schedule schedule = make_schedule(settings(num_microbatches));
  parallel::Simulation prediction = simulate(schedule, costs());
  return {.schedule = std::move(schedule), .prediction = std::move(prediction)};
}

const parallel::Schedule& PipelinePlan::evaluation(int64_t num_microbatches) const {
  const auto found = evaluations_.find(num_microbatches);
  if (found != evaluations_.end()) return found->second;
  return evaluations_[num_microbatches] = add_messages(make_forward_schedule(settings(num_microbatches)));
}

}  // namespace trainer
