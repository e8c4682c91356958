#include <algorithm>
#include <array>
#include <map>

#include "parallel/schedule_rules.h"
#include "parallel/schedule_simulator.h"
#include "parallel/schedule_walk.h"
#include "tensor/error.h"

namespace parallel {
namespace {

using Actions = std::vector<Action>;
using Faults = std::vector<std::string>;

/// Numbers that the other checks index by.
void find_bad_numbers(const Schedule& schedule, Faults& faults) {
  if (schedule.num_ranks() < 1 || schedule.num_stages() < 1 || schedule.num_microbatches < 1) {
    faults.push_back(fmt::format("{} ranks, {} stages and {} micro-batches: there is at least one of each.",
                                 schedule.num_ranks(), schedule.num_stages(), schedule.num_microbatches));
  }
  for (int stage = 0; stage < schedule.num_stages(); ++stage) {
    const int rank = schedule.rank_of_stage[static_cast<size_t>(stage)];
    if (rank >= 0 && rank < schedule.num_ranks()) continue;
    faults.push_back(fmt::format("Stage {} is on rank {} of {}.", stage, rank, schedule.num_ranks()));
  }
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    for (const Action& action : schedule.ranks[rank]) {
      const bool has_stage = action.stage >= 0 && action.stage < schedule.num_stages();
      if (has_stage && action.microbatch >= 0 && action.microbatch < schedule.num_microbatches) continue;
      faults.push_back(fmt::format("Rank {} has {}: stages end at {}, micro-batches at {}.", rank, to_text(action),
                                   schedule.num_stages() - 1, schedule.num_microbatches - 1));
    }
  }
}

void find_strays(const Schedule& schedule, Faults& faults) {
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (const Action& action : schedule.ranks[static_cast<size_t>(rank)]) {
      const int home = schedule.rank_of_stage[static_cast<size_t>(action.stage)];
      if (action.kind == ActionKind::step || home == rank) continue;
      faults.push_back(
          fmt::format("Rank {} has {}, but stage {} is on rank {}.", rank, to_text(action), action.stage, home));
    }
  }
}

using PassCounts = std::array<int, 4>;  // F, B, I, W

enum class Step { training, evaluation };

/// Empty where the counts are right.
std::string count_fault(const PassCounts& counts, int stage, int microbatch, Step step) {
  const auto& [forwards, backwards, inputs, weights] = counts;
  const std::string what = fmt::format("Stage {}, micro-batch {}: {} F, {} B, {} I, {} W; ", stage, microbatch,
                                       forwards, backwards, inputs, weights);
  if (forwards != 1) return what + "there is exactly one F.";
  if (step == Step::evaluation) return "";
  const bool is_whole = backwards == 1 && inputs == 0 && weights == 0;
  const bool is_split = backwards == 0 && inputs == 1 && weights == 1;
  return is_whole || is_split ? "" : what + "there is exactly one B, or one I and one W.";
}

void find_missing_passes(const Schedule& schedule, Faults& faults) {
  const Step step = has_backward(schedule) ? Step::training : Step::evaluation;
  std::vector<PassCounts> counts(schedule.rank_of_stage.size() * static_cast<size_t>(schedule.num_microbatches));
  for (const Actions& list : schedule.ranks) {
    for (const Action& action : list) {
      if (!is_pass(action.kind)) continue;
      const int chunk = action.stage * schedule.num_microbatches + action.microbatch;
      ++counts[static_cast<size_t>(chunk)].at(static_cast<size_t>(action.kind));
    }
  }
  for (size_t chunk = 0; chunk < counts.size(); ++chunk) {
    const int number = static_cast<int>(chunk);
    std::string fault =
        count_fault(counts[chunk], number / schedule.num_microbatches, number % schedule.num_microbatches, step);
    if (!fault.empty()) faults.push_back(std::move(fault));
  }
}

void find_bad_pairs(const Schedule& schedule, Faults& faults) {
  for (const Actions& list : schedule.ranks) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (!list[i].overlaps_next) continue;
      const bool has_backward_next = i + 1 < list.size() && list[i + 1].kind == ActionKind::backward;
      if (list[i].kind == ActionKind::forward && has_backward_next && !list[i + 1].overlaps_next) continue;
      faults.push_back(to_text(list[i]) +
                       " overlaps no backward: a pair is a forward, and a whole backward behind it.");
    }
  }
}

/// On its own rank a pass comes after what it needs from there.
void find_bad_order(const Schedule& schedule, Faults& faults) {
  ProductTable<char> is_made(schedule, 0);
  for (const Actions& list : schedule.ranks) {
    for (const Action& pass : list) {
      if (!is_pass(pass.kind)) continue;
      const auto rank_of = [&](int stage) { return schedule.rank_of_stage[static_cast<size_t>(stage)]; };
      for_each_input(schedule.num_stages(), pass, [&](Product product, int stage) {
        if (rank_of(stage) != rank_of(pass.stage) || is_made.at(product, stage, pass.microbatch) != 0) return;
        const char* what = product == Product::output ? "F" : "B or I";
        faults.push_back(fmt::format("Rank {}: {} comes before the {} of stage {} that it needs.", rank_of(pass.stage),
                                     to_text(pass), what, stage));
      });
      for_each_output(pass, [&](Product product) { is_made.at(product, pass.stage, pass.microbatch) = 1; });
    }
  }
}

void find_cycles(const Schedule& schedule, Faults& faults) {
  const Simulation simulation = simulate(schedule, {});
  if (simulation.stuck.empty()) return;
  faults.push_back(fmt::format("The ranks wait for each other for ever: {}.", stuck_text(schedule, simulation)));
}

}  // namespace

std::vector<std::string> passes_only_faults(const Schedule& schedule) {
  Faults faults;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (const Action& action : schedule.ranks[static_cast<size_t>(rank)]) {
      if (is_pass(action.kind)) continue;
      faults.push_back(fmt::format("Rank {} has {}: a file holds F, B, I and W only; all else is added to them.", rank,
                                   to_text(action)));
    }
  }
  if (!has_backward(schedule)) faults.push_back("There is no backward.");
  return faults;
}

std::vector<std::string> schedule_faults(const Schedule& schedule) {
  Faults faults;
  find_bad_numbers(schedule, faults);
  if (!faults.empty()) return faults;
  find_strays(schedule, faults);
  find_missing_passes(schedule, faults);
  find_bad_pairs(schedule, faults);
  if (!faults.empty()) return faults;
  find_bad_order(schedule, faults);
  find_action_faults(schedule, faults);
  if (faults.empty()) find_cycles(schedule, faults);
  return faults;
}

}  // namespace parallel
