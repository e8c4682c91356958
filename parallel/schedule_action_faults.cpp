#include <algorithm>
#include <map>
#include <set>

#include "parallel/schedule_rules.h"
#include "parallel/schedule_walk.h"
#include "tensor/error.h"

namespace parallel {
namespace {

using Actions = std::vector<Action>;
using Faults = std::vector<std::string>;

constexpr size_t kNoPlace = static_cast<size_t>(-1);

bool has_any(const Schedule& schedule, bool (*is_kind)(ActionKind)) {
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [&](const Actions& list) {
    return std::any_of(list.begin(), list.end(), [&](const Action& action) { return is_kind(action.kind); });
  });
}

/// Messages of a schedule that has any: each hidden state or gradient that crosses ranks is sent once after it was
/// made, and received once before it is used.
class MessageCheck {
 public:
  MessageCheck(const Schedule& schedule, Faults& faults) : schedule_(schedule), faults_(faults) {}

  void run() {
    if (!has_any(schedule_, is_message)) return;
    for (const Actions& list : schedule_.ranks) {
      for (size_t i = 0; i < list.size(); ++i) note(list[i], i);
    }
    for (const auto& [message, pass] : needed_) require(message, pass);
    for (const auto& [message, places] : found_) {
      if (needed_.count(message) == 0) {
        faults_.push_back(to_text(to_action(message)) +
                          " crosses no ranks: its stages have nothing to tell each other.");
      }
    }
  }

 private:
  using Message = std::tuple<ActionKind, int, int>;

  static Action to_action(const Message& message) {
    const auto& [kind, stage, microbatch] = message;
    return {kind, stage, microbatch};
  }
  bool crosses(int stage, int other) const {
    if (other < 0 || other >= schedule_.num_stages()) return false;
    return schedule_.rank_of_stage[static_cast<size_t>(stage)] != schedule_.rank_of_stage[static_cast<size_t>(other)];
  }

  void note(const Action& action, size_t place) {
    if (is_message(action.kind)) found_[{action.kind, action.stage, action.microbatch}].push_back(place);
    if (!is_pass(action.kind)) return;
    const auto need = [&](ActionKind kind, int other) {
      if (crosses(action.stage, other)) needed_[{kind, action.stage, action.microbatch}] = place;
    };
    if (action.kind == ActionKind::forward) {
      need(ActionKind::receive_forward, action.stage - 1);
      need(ActionKind::send_forward, action.stage + 1);
    }
    if (makes_input_grad(action.kind)) {
      need(ActionKind::receive_backward, action.stage + 1);
      need(ActionKind::send_backward, action.stage - 1);
    }
  }

  void require(const Message& message, size_t pass) {
    const Action action = to_action(message);
    const std::vector<size_t>& places = found_[message];
    if (places.size() != 1) {
      faults_.push_back(fmt::format("{} is there {} times, not once.", to_text(action), places.size()));
    } else if (is_send(action.kind) && places[0] < pass) {
      faults_.push_back(to_text(action) + " comes before the pass that makes what it sends.");
    } else if (!is_send(action.kind) && places[0] > pass) {
      faults_.push_back(to_text(action) + " comes after the pass that needs it.");
    }
  }

  const Schedule& schedule_;
  Faults& faults_;
  std::map<Message, std::vector<size_t>> found_;  // where in its rank's list
  std::map<Message, size_t> needed_;              // the pass that makes or uses it
};

/// UNSHARD and RESHARD in turn, and passes between them; of stages that have any.
void find_bad_gathers(const Actions& list, Faults& faults) {
  std::set<int> gathered, sharded;
  for (const Action& action : list) {
    if (action.kind == ActionKind::unshard) sharded.insert(action.stage);
  }
  for (const Action& action : list) {
    const bool is_whole = gathered.count(action.stage) > 0;
    if (action.kind == ActionKind::unshard) {
      if (is_whole) faults.push_back(to_text(action) + " of a stage that is whole already.");
      gathered.insert(action.stage);
    } else if (action.kind == ActionKind::reshard) {
      if (!is_whole) faults.push_back(to_text(action) + " of a stage that is not whole.");
      gathered.erase(action.stage);
    } else if (is_pass(action.kind) && !is_whole && sharded.count(action.stage) > 0) {
      faults.push_back(to_text(action) + " comes while its stage's parameters are not whole.");
    }
  }
  for (const int stage : gathered) faults.push_back(fmt::format("{}UNSHARD has no RESHARD behind it.", stage));
}

/// REDUCE_GRAD directly behind a pass that completes gradients of the same stage and micro-batch; of stages that have
/// any, behind the last such pass too.
void find_bad_reductions(const Actions& list, Faults& faults) {
  std::map<int, size_t> last_pass, last_reduction;
  for (size_t i = 0; i < list.size(); ++i) {
    if (completes_weights(list[i].kind)) last_pass[list[i].stage] = i;
    if (list[i].kind != ActionKind::reduce_grad) continue;
    last_reduction[list[i].stage] = i;
    const bool is_behind_pass = i > 0 && completes_weights(list[i - 1].kind) && list[i - 1].stage == list[i].stage &&
                                list[i - 1].microbatch == list[i].microbatch;
    if (!is_behind_pass) faults.push_back(to_text(list[i]) + " is not right behind its B or W.");
  }
  for (const auto& [stage, place] : last_reduction) {
    if (last_pass.count(stage) > 0 && last_pass[stage] < place) continue;
    faults.push_back(fmt::format("The last gradients of stage {} are not reduced.", stage));
  }
}

/// One STEP at the end of every rank, or of none.
void find_bad_steps(const Schedule& schedule, Faults& faults) {
  const auto is_step = [](ActionKind kind) { return kind == ActionKind::step; };
  if (!has_any(schedule, is_step)) return;
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const Actions& list = schedule.ranks[rank];
    const auto count = std::count_if(list.begin(), list.end(), [&](const Action& a) { return is_step(a.kind); });
    if (count == 1 && is_step(list.back().kind)) continue;
    faults.push_back(fmt::format("Rank {} has {} STEP; there is one, at the end of every rank.", rank, count));
  }
}

/// One REDUCE_TIED of the first and one of the last stage, behind their last pass, or none.
void find_bad_tied(const Schedule& schedule, Faults& faults) {
  std::map<int, int> counts;
  bool is_early = false;
  for (const Actions& list : schedule.ranks) {
    size_t place = kNoPlace;
    for (size_t i = 0; i < list.size(); ++i) {
      if (is_pass(list[i].kind) && place != kNoPlace) is_early = true;
      if (list[i].kind != ActionKind::reduce_tied) continue;
      place = i;
      ++counts[list[i].stage];
    }
  }
  if (counts.empty()) return;
  const int last = schedule.num_stages() - 1;
  if (counts.size() != 2 || counts[0] != 1 || counts[last] != 1) {
    faults.push_back("REDUCE_TIED is there once for the first and once for the last stage, or not at all.");
  }
  if (is_early) faults.push_back("REDUCE_TIED comes before the last pass of its rank.");
}

}  // namespace

void find_action_faults(const Schedule& schedule, std::vector<std::string>& faults) {
  MessageCheck(schedule, faults).run();
  for (const Actions& list : schedule.ranks) {
    find_bad_gathers(list, faults);
    find_bad_reductions(list, faults);
  }
  find_bad_steps(schedule, faults);
  find_bad_tied(schedule, faults);
}

}  // namespace parallel
