#include "parallel/schedule_passes.h"
#include "parallel/schedule_walk.h"
#include "tensor/error.h"

namespace parallel {
namespace {

using Actions = std::vector<Action>;

/// A pass or pair with the actions that stay with it: places [begin, end) of a rank's list, passes [passes, behind),
/// their reductions [behind, rest).
struct Unit {
  size_t begin, passes, behind, rest, end;
};

Unit unit_at(const Actions& list, size_t begin) {
  Unit unit{begin, begin, begin, begin, begin};
  while (unit.passes < list.size() && !is_pass(list[unit.passes].kind)) ++unit.passes;
  unit.behind = unit.passes + (unit.passes < list.size() ? block_length(list, unit.passes) : 0);
  unit.rest = unit.behind;
  while (unit.rest < list.size() && list[unit.rest].kind == ActionKind::reduce_grad) ++unit.rest;
  unit.end = unit.rest;
  const auto leads_on = [](ActionKind kind) { return is_pass(kind) || kind == ActionKind::unshard; };
  while (unit.end < list.size() && !leads_on(list[unit.end].kind)) ++unit.end;
  return unit;
}

class Lowering {
 public:
  explicit Lowering(const Schedule& schedule)
      : schedule_(schedule), is_made_(schedule, 0), cursors_(schedule.ranks.size(), 0) {
    result_.num_microbatches = schedule.num_microbatches;
    result_.rank_of_stage = schedule.rank_of_stage;
    result_.ranks.resize(schedule.ranks.size());
  }

  Schedule run() {
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (size_t rank = 0; rank < cursors_.size(); ++rank) has_moved = take_turn(rank) || has_moved;
    }
    for (size_t rank = 0; rank < cursors_.size(); ++rank) {
      const Actions& list = schedule_.ranks[rank];
      CHECK(cursors_[rank] == list.size(), "rank {} cannot run {}", rank, to_text(list[cursors_[rank]]));
    }
    return std::move(result_);
  }

 private:
  /// Whether the rank could run its next unit.
  bool take_turn(size_t rank) {
    const Actions& list = schedule_.ranks[rank];
    if (cursors_[rank] == list.size()) return false;
    const Unit unit = unit_at(list, cursors_[rank]);
    for (size_t i = unit.passes; i < unit.behind; ++i) {
      if (!is_ready(list[i])) return false;
    }
    append(rank, unit.begin, unit.rest);
    for (size_t i = unit.passes; i < unit.behind; ++i) {
      for_each_output(list[i], [&](Product product) { is_made_.at(product, list[i].stage, list[i].microbatch) = 1; });
      send_output(list[i]);
    }
    append(rank, unit.rest, unit.end);
    cursors_[rank] = unit.end;
    return true;
  }

  bool is_ready(const Action& pass) {
    bool is_ready = true;
    for_each_input(schedule_.num_stages(), pass, [&](Product product, int stage) {
      is_ready = is_ready && is_made_.at(product, stage, pass.microbatch) != 0;
    });
    return is_ready;
  }

  void append(size_t rank, size_t begin, size_t end) {
    const auto first = schedule_.ranks[rank].begin();
    Actions& to = result_.ranks[rank];
    to.insert(to.end(), first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end));
  }

  void send_output(const Action& pass) {
    if (pass.kind == ActionKind::forward && pass.stage + 1 < schedule_.num_stages()) {
      add_message(pass, ActionKind::send_forward, ActionKind::receive_forward, pass.stage + 1);
    }
    if (makes_input_grad(pass.kind) && pass.stage > 0) {
      add_message(pass, ActionKind::send_backward, ActionKind::receive_backward, pass.stage - 1);
    }
  }

  void add_message(const Action& pass, ActionKind send, ActionKind receive, int to_stage) {
    const int from = schedule_.rank_of_stage[static_cast<size_t>(pass.stage)];
    const int to = schedule_.rank_of_stage[static_cast<size_t>(to_stage)];
    if (from == to) return;
    result_.ranks[static_cast<size_t>(from)].push_back({send, pass.stage, pass.microbatch});
    result_.ranks[static_cast<size_t>(to)].push_back({receive, to_stage, pass.microbatch});
  }

  const Schedule& schedule_;
  ProductTable<char> is_made_;
  std::vector<size_t> cursors_;  // by rank: the next action
  Schedule result_;
};

}  // namespace

Schedule add_messages(const Schedule& schedule) { return Lowering(schedule).run(); }

}  // namespace parallel
