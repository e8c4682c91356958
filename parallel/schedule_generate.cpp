#include "parallel/schedule_generate.h"

#include <algorithm>
#include <deque>

namespace parallel {
namespace {

using Actions = std::vector<Action>;

/// A rank's pass over its `chunk`-th stage.
struct Visit {
  int chunk;
  int microbatch;
};

/// A rank's forwards in order: group after group, in a group stage after stage.
std::vector<Visit> visits_in_order(const ScheduleShape& shape) {
  std::vector<Visit> visits;
  for (int first = 0; first < shape.num_microbatches; first += shape.microbatch_group) {
    const int end = std::min(first + shape.microbatch_group, shape.num_microbatches);
    for (int chunk = 0; chunk < shape.virtual_stages; ++chunk) {
      for (int microbatch = first; microbatch < end; ++microbatch) visits.push_back({chunk, microbatch});
    }
  }
  return visits;
}

/// Forwards ahead, then one forward and one backward in turn, then the backwards that are left. Backwards take the
/// order of the forwards, with the stages from last to first.
Actions in_turn(const ScheduleShape& shape, int rank, int ahead_per_rank) {
  const std::vector<Visit> visits = visits_in_order(shape);
  const size_t ahead = static_cast<size_t>((shape.virtual_stages - 1) * shape.microbatch_group +
                                           ahead_per_rank * (shape.num_ranks - 1 - rank));
  Actions list;
  const auto forward = [&](const Visit& visit) {
    list.push_back({ActionKind::forward, visit.chunk * shape.num_ranks + rank, visit.microbatch});
  };
  const auto backward = [&](const Visit& visit) {
    const int chunk = shape.virtual_stages - 1 - visit.chunk;
    list.push_back({ActionKind::backward, chunk * shape.num_ranks + rank, visit.microbatch});
  };
  for (size_t i = 0; i < std::min(ahead, visits.size()); ++i) forward(visits[i]);
  for (size_t i = 0; i < visits.size(); ++i) {
    if (ahead + i < visits.size()) forward(visits[ahead + i]);
    backward(visits[i]);
  }
  return list;
}

/// B becomes I, and W once more than `lag` of them are waiting.
Actions split_backwards(const Actions& whole, size_t lag) {
  Actions list;
  std::deque<Action> weights;
  for (const Action& action : whole) {
    if (action.kind != ActionKind::backward) {
      list.push_back(action);
      continue;
    }
    list.push_back({ActionKind::backward_input, action.stage, action.microbatch});
    weights.push_back({ActionKind::backward_weight, action.stage, action.microbatch});
    if (weights.size() <= lag) continue;
    list.push_back(weights.front());
    weights.pop_front();
  }
  list.insert(list.end(), weights.begin(), weights.end());
  return list;
}

ScheduleShape one_stage_a_rank(ScheduleShape shape) {
  shape.virtual_stages = 1;
  shape.microbatch_group = shape.num_microbatches;
  return shape;
}

/// A schedule in a loop whose ranks `list_of` fills.
template <typename ListOf>
Schedule in_a_loop(const ScheduleShape& shape, ListOf list_of) {
  Schedule schedule = loop_placement(shape);
  for (int rank = 0; rank < shape.num_ranks; ++rank) schedule.ranks[static_cast<size_t>(rank)] = list_of(rank);
  return schedule;
}

Schedule zero_bubble(const ScheduleShape& shape) {
  return in_a_loop(shape,
                   [&](int rank) { return split_backwards(in_turn(shape, rank, 1), static_cast<size_t>(rank)); });
}

}  // namespace

Schedule loop_placement(const ScheduleShape& shape) {
  Schedule schedule{.num_microbatches = shape.num_microbatches};
  for (int stage = 0; stage < shape.num_ranks * shape.virtual_stages; ++stage) {
    schedule.rank_of_stage.push_back(stage % shape.num_ranks);
  }
  schedule.ranks.resize(static_cast<size_t>(shape.num_ranks));
  return schedule;
}

int default_microbatch_group(int num_ranks, int num_microbatches) {
  int group = std::min(num_ranks, num_microbatches);
  const auto fits = [&] { return num_microbatches % group == 0 || num_microbatches % group >= num_ranks; };
  while (!fits()) ++group;
  return group;
}

Schedule gpipe(const ScheduleShape& shape) {
  return in_a_loop(one_stage_a_rank(shape), [&](int rank) {
    Actions list;
    for (const ActionKind kind : {ActionKind::forward, ActionKind::backward}) {
      for (int i = 0; i < shape.num_microbatches; ++i) list.push_back({kind, rank, i});
    }
    return list;
  });
}

Schedule one_forward_one_backward(const ScheduleShape& shape) {
  const ScheduleShape plain = one_stage_a_rank(shape);
  return in_a_loop(plain, [&](int rank) { return in_turn(plain, rank, 1); });
}

Schedule interleaved(const ScheduleShape& shape) {
  return in_a_loop(shape, [&](int rank) { return in_turn(shape, rank, 2); });
}

Schedule breadth_first(const ScheduleShape& shape) {
  ScheduleShape one_group = shape;
  one_group.microbatch_group = shape.num_microbatches;
  return in_a_loop(one_group, [&](int rank) {
    Actions list;
    const std::vector<Visit> visits = visits_in_order(one_group);
    for (const Visit& visit : visits) {
      list.push_back({ActionKind::forward, visit.chunk * shape.num_ranks + rank, visit.microbatch});
    }
    for (auto visit = visits.rbegin(); visit != visits.rend(); ++visit) {
      list.push_back({ActionKind::backward, visit->chunk * shape.num_ranks + rank, visit->microbatch});
    }
    return list;
  });
}

Schedule zero_bubble_h1(const ScheduleShape& shape) { return zero_bubble(one_stage_a_rank(shape)); }

Schedule interleaved_zero_bubble(const ScheduleShape& shape) { return zero_bubble(shape); }

}  // namespace parallel
