#include <algorithm>

#include "parallel/schedule_rules.h"
#include "parallel/schedule_simulator.h"
#include "tensor/error.h"

namespace parallel {
namespace {

using Problems = std::vector<LayoutProblem>;

constexpr int kMaxNumber = 1 << 20;        // of stages or micro-batches; more is a typing error
constexpr int64_t kMaxForwards = 1 << 22;  // a few seconds, and 2 GB, to plan
constexpr size_t kMaxFaults = 8;           // told of one file

void require_number(Problems& problems, const char* key, int value, int least) {
  if (least <= value && value <= kMaxNumber) return;
  problems.push_back({key, fmt::format("{} = {} is not between {} and {}.\n  Fix: use {} or more.", key, value, least,
                                       kMaxNumber, least)});
}

/// Lists of more passes than any step has would fill the memory.
void require_size(Problems& problems, int64_t stages, int64_t num_microbatches) {
  const int64_t forwards = stages * num_microbatches;
  if (forwards <= kMaxForwards) return;
  problems.push_back(
      {"parallel.schedule", fmt::format("{} stages * {} micro-batches = {} forwards per step; the most is {}.\n"
                                        "  Fix: use fewer micro-batches per step, or fewer parallel.virtual_stages.",
                                        stages, num_microbatches, forwards, kMaxForwards)});
}

std::string known_names() {
  std::string names;
  for (const std::string& name : schedule_names()) names += name + ", ";
  return names + "or file:PATH";
}

void require_virtual_stages(Problems& problems, const ScheduleSettings& settings, const ScheduleLimits& limits) {
  const int stages = settings.virtual_stages;
  if (stages == 0) return;
  if (stages < limits.least_virtual_stages) {
    problems.push_back({"parallel.virtual_stages",
                        fmt::format("parallel.virtual_stages = {} is too few for parallel.schedule = {}.\n"
                                    "  Its stages go down the ranks and back up, so that each rank has two.\n"
                                    "  Fix: set parallel.virtual_stages = 2, or parallel.schedule = zb_h1.",
                                    stages, settings.name)});
  } else if (limits.most_virtual_stages != kNoLimit && stages > limits.most_virtual_stages) {
    problems.push_back({"parallel.virtual_stages",
                        fmt::format("parallel.virtual_stages = {} is too many for parallel.schedule = {}.\n"
                                    "  Its order is made for {} on a rank.\n"
                                    "  Fix: set parallel.virtual_stages = {}, or parallel.schedule to interleaved, bfs "
                                    "or interleaved_zb, which take any number.",
                                    stages, settings.name, limits.most_virtual_stages == 1 ? "one stage" : "two stages",
                                    limits.most_virtual_stages)});
  }
}

void require_microbatches(Problems& problems, const ScheduleSettings& settings, const ScheduleLimits& limits) {
  const int least = limits.microbatches_per_rank * settings.num_ranks;
  if (settings.num_microbatches >= least) return;
  const int most_ranks = settings.num_microbatches / limits.microbatches_per_rank;
  const std::string fewer_ranks = most_ranks > 1    ? fmt::format(", parallel.pp of {} or fewer", most_ranks)
                                  : most_ranks == 1 ? ", parallel.pp = 1"
                                                    : "";
  problems.push_back(
      {"parallel.schedule",
       fmt::format("parallel.schedule = {} needs {} micro-batches per step for each pipeline rank, {} * {} = {}; this "
                   "step has {}.\n"
                   "  With fewer, forwards and backwards never meet on a rank to make a pair.\n"
                   "  Fix: use a train.global_batch_size of {} micro-batches per data-parallel rank{}, or "
                   "parallel.schedule = zb_v.",
                   settings.name, limits.microbatches_per_rank, limits.microbatches_per_rank, settings.num_ranks, least,
                   settings.num_microbatches, least, fewer_ranks)});
}

/// Groups that follow the rule always work; the others do where they happen to.
void require_group(Problems& problems, const ScheduleSettings& settings, const ScheduleRules& rules) {
  const int group = settings.microbatch_group;
  if (group == 0) return;
  if (rules.limits.grouping == Grouping::none) {
    problems.push_back(
        {"parallel.microbatch_group",
         fmt::format("parallel.microbatch_group = {} has no meaning for parallel.schedule = {}.\n"
                     "  Only interleaved and interleaved_zb visit a stage for a group of micro-batches.\n"
                     "  Fix: take the key out.",
                     group, settings.name)});
    return;
  }
  const ScheduleShape shape = shape_of(settings);
  if (simulate(rules.generate(shape), {}).stuck.empty()) return;
  problems.push_back(
      {"parallel.microbatch_group",
       fmt::format(
           "parallel.microbatch_group = {} lets {} pipeline ranks wait for each other for ever, with {} "
           "micro-batches.\n"
           "  A rank visits its next stage when the micro-batches of a group have gone round all ranks: groups of "
           "at least pp = {} always work, where the last one too is that large.\n"
           "  Fix: use {} or {}.",
           group, settings.num_ranks, settings.num_microbatches, settings.num_ranks,
           default_microbatch_group(settings.num_ranks, settings.num_microbatches), settings.num_microbatches)});
}

std::string listed(const std::vector<std::string>& faults) {
  std::string text;
  for (size_t i = 0; i < std::min(faults.size(), kMaxFaults); ++i) text += "\n  " + faults[i];
  if (faults.size() > kMaxFaults) text += fmt::format("\n  And {} more.", faults.size() - kMaxFaults);
  return text;
}

void require_file_fits(Problems& problems, const ScheduleSettings& settings, const Schedule& schedule) {
  const auto add = [&](const std::string& text) {
    problems.push_back({"parallel.schedule", settings.name + ": " + text});
  };
  if (schedule.num_ranks() != settings.num_ranks) {
    add(
        fmt::format("this schedule is for {} pipeline ranks; this run has {}.\n"
                    "  The file has one line per rank.\n  Fix: set parallel.pp = {}, or take another file.",
                    schedule.num_ranks(), settings.num_ranks, schedule.num_ranks()));
    return;
  }
  if (schedule.num_stages() % schedule.num_ranks() != 0) {
    add(
        fmt::format("{} stages cannot be spread evenly over {} ranks.\n"
                    "  Every rank runs virtual_stages stages.\n  Fix: give every rank equally many.",
                    schedule.num_stages(), schedule.num_ranks()));
    return;
  }
  const int virtual_stages = schedule.num_stages() / schedule.num_ranks();
  if (settings.virtual_stages != 0 && settings.virtual_stages != virtual_stages) {
    add(
        fmt::format("this schedule has {} stages on a rank, but parallel.virtual_stages = {}.\n"
                    "  Fix: set parallel.virtual_stages = {}, or leave it out.",
                    virtual_stages, settings.virtual_stages, virtual_stages));
  }
}

void require_file_is_step(Problems& problems, const ScheduleSettings& settings, const Schedule& schedule) {
  const auto add = [&](const std::string& text) {
    problems.push_back({"parallel.schedule", settings.name + ": " + text});
  };
  if (schedule.num_microbatches != settings.num_microbatches) {
    add(
        fmt::format("this schedule is of {} micro-batches per step; this run has {}.\n"
                    "  Micro-batches per step = train.global_batch_size / (train.micro_batch_size * dp).\n"
                    "  Fix: change these to give {}, or take another file.",
                    schedule.num_microbatches, settings.num_microbatches, schedule.num_microbatches));
  }
  std::vector<std::string> faults = passes_only_faults(schedule);
  if (faults.empty()) faults = schedule_faults(schedule);
  if (faults.empty()) return;
  add(fmt::format("this is no schedule of one training step.{}\n  Fix: correct the file.", listed(faults)));
}

}  // namespace

std::vector<LayoutProblem> placement_problems(const ScheduleSettings& settings) {
  Problems problems;
  require_number(problems, "parallel.pp", settings.num_ranks, 1);
  require_number(problems, "micro-batches per step", settings.num_microbatches, 1);
  require_number(problems, "parallel.virtual_stages", settings.virtual_stages, 0);
  require_number(problems, "parallel.microbatch_group", settings.microbatch_group, 0);
  if (!problems.empty()) return problems;
  if (is_schedule_file(settings.name)) {
    const Schedule schedule = read_schedule(settings.name);
    require_file_fits(problems, settings, schedule);
    require_size(problems, schedule.num_stages(), schedule.num_microbatches);
  } else if (const ScheduleRules* rules = find_rules(settings.name)) {
    require_virtual_stages(problems, settings, rules->limits);
    require_size(problems, int64_t{settings.num_ranks} * shape_of(settings).virtual_stages, settings.num_microbatches);
  } else {
    problems.push_back({"parallel.schedule", fmt::format("parallel.schedule = \"{}\" is no schedule.\n  Fix: use {}.",
                                                         settings.name, known_names())});
  }
  return problems;
}

std::vector<LayoutProblem> schedule_problems(const ScheduleSettings& settings) {
  Problems problems = placement_problems(settings);
  if (!problems.empty()) return problems;
  if (is_schedule_file(settings.name)) {
    require_file_is_step(problems, settings, read_schedule(settings.name));
    return problems;
  }
  const ScheduleRules& rules = *find_rules(settings.name);
  require_microbatches(problems, settings, rules.limits);
  require_group(problems, settings, rules);
  return problems;
}

}  // namespace parallel
