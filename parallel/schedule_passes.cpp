#include "parallel/schedule_passes.h"

#include <map>

#include "parallel/schedule_walk.h"
#include "tensor/error.h"

namespace parallel {
namespace {

using Actions = std::vector<Action>;

/// A pass, or an overlapped pair: places [begin, end) of a rank's list.
struct Block {
  size_t begin;
  size_t end;
};

std::vector<Block> blocks_of(const Actions& list) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < list.size(); i = blocks.back().end) blocks.push_back({i, i + block_length(list, i)});
  return blocks;
}

/// By stage, the blocks that use it, in order.
std::map<int, std::vector<size_t>> uses_of_stages(const Actions& list, const std::vector<Block>& blocks) {
  std::map<int, std::vector<size_t>> uses;
  for (size_t block = 0; block < blocks.size(); ++block) {
    for (size_t i = blocks[block].begin; i < blocks[block].end; ++i) {
      std::vector<size_t>& of_stage = uses[list[i].stage];
      if (of_stage.empty() || of_stage.back() != block) of_stage.push_back(block);
    }
  }
  return uses;
}

/// Stages to gather before and to give back after each block.
struct Gathers {
  std::vector<std::vector<int>> before, after;
};

Gathers gathers_per_run(const Actions& list, const std::vector<Block>& blocks) {
  Gathers gathers{std::vector<std::vector<int>>(blocks.size()), std::vector<std::vector<int>>(blocks.size())};
  for (const auto& [stage, uses] : uses_of_stages(list, blocks)) {
    const auto gather_for = [&, of = stage](size_t first) { gathers.before[first > 0 ? first - 1 : 0].push_back(of); };
    gather_for(uses.front());
    for (size_t i = 1; i < uses.size(); ++i) {
      if (uses[i] - uses[i - 1] <= 2) continue;  // at most one pass in between
      gathers.after[uses[i - 1]].push_back(stage);
      gather_for(uses[i]);
    }
    gathers.after[uses.back()].push_back(stage);
  }
  return gathers;
}

Gathers gathers_per_step(const Actions& list, const std::vector<Block>& blocks) {
  Gathers gathers{std::vector<std::vector<int>>(blocks.size()), std::vector<std::vector<int>>(blocks.size())};
  for (const auto& [stage, uses] : uses_of_stages(list, blocks)) {
    gathers.before[uses.front()].push_back(stage);
    gathers.after.back().push_back(stage);
  }
  return gathers;
}

Gathers gathers_of(const Actions& list, const std::vector<Block>& blocks, ZeroActions::Gather gather) {
  switch (gather) {
    case ZeroActions::Gather::per_run:
      return gathers_per_run(list, blocks);
    case ZeroActions::Gather::per_step:
      return gathers_per_step(list, blocks);
    case ZeroActions::Gather::per_pass:
      break;
  }
  return {std::vector<std::vector<int>>(blocks.size()), std::vector<std::vector<int>>(blocks.size())};
}

bool is_backward_of(const Action& action, int stage) {
  return action.stage == stage && action.kind != ActionKind::forward;
}

/// By place in the list, whether the stage's gradients are reduced right behind the pass.
std::vector<char> reductions_of(const Actions& list, ZeroActions::Reduce reduce) {
  std::vector<char> reduced(list.size(), 0);
  std::map<int, size_t> last;          // by stage: its last B or W so far
  std::map<int, size_t> last_of_step;  // of the whole list
  for (size_t i = 0; i < list.size(); ++i) {
    if (completes_weights(list[i].kind)) last_of_step[list[i].stage] = i;
  }
  for (const auto& [stage, place] : last_of_step) reduced[place] = 1;
  if (reduce == ZeroActions::Reduce::per_step) return reduced;
  for (size_t i = 0; i < list.size(); ++i) {
    const int stage = list[i].stage;
    if (completes_weights(list[i].kind)) last[stage] = i;
    const bool ends_run =
        reduce == ZeroActions::Reduce::per_pass || i + 1 == list.size() || !is_backward_of(list[i + 1], stage);
    if (!ends_run || last.count(stage) == 0) continue;
    reduced[last[stage]] = 1;
    last.erase(stage);
  }
  return reduced;
}

Actions with_zero_actions(const Actions& list, const ZeroActions& actions) {
  const std::vector<Block> blocks = blocks_of(list);
  const Gathers gathers = gathers_of(list, blocks, actions.gather);
  const std::vector<char> reduced = reductions_of(list, actions.reduce);
  Actions result;
  for (size_t block = 0; block < blocks.size(); ++block) {
    for (const int stage : gathers.before[block]) result.push_back({ActionKind::unshard, stage});
    for (size_t i = blocks[block].begin; i < blocks[block].end; ++i) {
      result.push_back(list[i]);
      if (reduced[i] != 0) result.push_back({ActionKind::reduce_grad, list[i].stage, list[i].microbatch});
    }
    for (const int stage : gathers.after[block]) result.push_back({ActionKind::reshard, stage});
  }
  return result;
}

}  // namespace

Schedule add_zero_actions(const Schedule& passes, const ZeroActions& actions) {
  Schedule result = passes;
  for (Actions& list : result.ranks) {
    for (const Action& action : list) CHECK(is_pass(action.kind), "{} before ZeRO's actions", to_text(action));
    list = with_zero_actions(list, actions);
  }
  return result;
}

Schedule add_step(const Schedule& schedule, SharedTable table) {
  Schedule result = schedule;
  const int first = schedule.rank_of_stage.front();
  const int last = schedule.rank_of_stage.back();
  if (table == SharedTable::first_and_last_stage && first != last) {
    result.ranks[static_cast<size_t>(first)].push_back({ActionKind::reduce_tied, 0});
    result.ranks[static_cast<size_t>(last)].push_back({ActionKind::reduce_tied, schedule.num_stages() - 1});
  }
  for (Actions& list : result.ranks) list.push_back({ActionKind::step});
  return result;
}

}  // namespace parallel
