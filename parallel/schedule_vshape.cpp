#include <algorithm>
#include <deque>

#include "parallel/schedule_generate.h"

namespace parallel {
namespace {

/// A stage of a rank, and the micro-batch that each kind of pass takes next.
struct Lane {
  int stage;
  int next_forward = 0;
  int next_backward = 0;
  int next_weight = 0;
};

/// The list of one rank: `down` is its stage on the way to the last rank, `up` the one on the way back.
class VList {
 public:
  VList(int num_ranks, int rank) : down{.stage = rank}, up{.stage = 2 * num_ranks - 1 - rank} {}

  Lane down, up;

  void forward(Lane& lane) { add(ActionKind::forward, lane.stage, lane.next_forward++); }
  void backward(Lane& lane) { add(ActionKind::backward, lane.stage, lane.next_backward++); }
  void pair(Lane& forward_of, Lane& backward_of) {
    forward(forward_of);
    actions_.back().overlaps_next = true;
    backward(backward_of);
  }
  void input(Lane& lane) {
    waiting_.push_back({ActionKind::backward_weight, lane.stage, lane.next_backward});
    add(ActionKind::backward_input, lane.stage, lane.next_backward++);
  }
  void weight(Lane& lane) { add(ActionKind::backward_weight, lane.stage, lane.next_weight++); }
  /// The weights of the backward_input that has waited longest, of either stage.
  void oldest_weight() {
    actions_.push_back(waiting_.front());
    waiting_.pop_front();
  }

  std::vector<Action> take() { return std::move(actions_); }

 private:
  void add(ActionKind kind, int stage, int microbatch) { actions_.push_back({kind, stage, microbatch}); }

  std::vector<Action> actions_;
  std::deque<Action> waiting_;
};

template <typename Body>
void repeat(int times, Body body) {
  for (int i = 0; i < times; ++i) body();
}

void zero_bubble_v_warmup(VList& list, int num_ranks, int rank) {
  repeat(2 * (num_ranks - rank) - 1, [&] { list.forward(list.down); });
  repeat(rank, [&] {
    list.forward(list.up);
    list.forward(list.down);
  });
  repeat(num_ranks - rank, [&] {
    list.forward(list.up);
    list.input(list.up);
    list.weight(list.up);
  });
}

void zero_bubble_v_steady(VList& list, int num_microbatches) {
  while (list.up.next_forward < num_microbatches) {
    if (list.down.next_forward < num_microbatches) list.forward(list.down);
    list.input(list.down);
    list.weight(list.down);
    list.forward(list.up);
    list.input(list.up);
    list.weight(list.up);
  }
}

void zero_bubble_v_cooldown(VList& list, int num_ranks, int rank) {
  repeat(rank, [&] {
    list.input(list.down);
    list.input(list.up);
  });
  repeat(num_ranks - rank, [&] {
    list.input(list.down);
    list.weight(list.down);
  });
  while (list.up.next_weight < list.up.next_backward) list.weight(list.up);
  while (list.down.next_weight < list.down.next_backward) list.weight(list.down);
}

/// The rule needs 2P - 1 micro-batches to fill the V; a shorter step is a longer one with the rest left out.
std::vector<Action> zero_bubble_v_rank(const ScheduleShape& shape, int rank) {
  VList list(shape.num_ranks, rank);
  zero_bubble_v_warmup(list, shape.num_ranks, rank);
  zero_bubble_v_steady(list, std::max(shape.num_microbatches, 2 * shape.num_ranks - 1));
  zero_bubble_v_cooldown(list, shape.num_ranks, rank);
  std::vector<Action> actions = list.take();
  std::erase_if(actions, [&](const Action& action) { return action.microbatch >= shape.num_microbatches; });
  return actions;
}

void dualpipe_v_warmup(VList& list, int num_ranks, int rank) {
  repeat(2 * (num_ranks - rank - 1), [&] { list.forward(list.down); });
  repeat(rank + 1, [&] {
    list.forward(list.down);
    list.forward(list.up);
  });
  repeat(num_ranks - rank - 1, [&] {
    list.input(list.up);
    list.oldest_weight();
    list.forward(list.up);
  });
}

void dualpipe_v_steady(VList& list, const ScheduleShape& shape, int rank) {
  const int num_rounds = shape.num_microbatches - 2 * shape.num_ranks + rank + 1;
  for (int round = 0; round < num_rounds; ++round) {
    if (round == 0 && rank == shape.num_ranks - 1) {
      list.forward(list.down);  // apart: the backward need not wait for a forward that nobody waits for
      list.backward(list.up);
    } else {
      list.pair(list.down, list.up);
    }
    list.pair(list.up, list.down);
  }
  repeat(shape.num_ranks - rank - 1, [&] {
    list.backward(list.up);
    list.pair(list.up, list.down);
  });
}

void dualpipe_v_cooldown(VList& list, int num_ranks, int rank) {
  const int num_backwards = 2 * (rank + 1);
  for (int i = 0; i < num_backwards; ++i) {
    Lane& lane = i % 2 == 0 ? list.up : list.down;
    if (i <= rank) {
      list.backward(lane);
    } else {
      list.input(lane);
    }
  }
  repeat(num_ranks - rank - 1, [&] {
    list.oldest_weight();
    list.input(list.down);
  });
  repeat(rank + 1, [&] { list.oldest_weight(); });
}

std::vector<Action> dualpipe_v_rank(const ScheduleShape& shape, int rank) {
  VList list(shape.num_ranks, rank);
  dualpipe_v_warmup(list, shape.num_ranks, rank);
  dualpipe_v_steady(list, shape, rank);
  dualpipe_v_cooldown(list, shape.num_ranks, rank);
  return list.take();
}

template <typename ListOf>
Schedule in_a_v(const ScheduleShape& shape, ListOf list_of) {
  Schedule schedule = v_placement(shape);
  for (int rank = 0; rank < shape.num_ranks; ++rank) schedule.ranks[static_cast<size_t>(rank)] = list_of(shape, rank);
  return schedule;
}

}  // namespace

Schedule v_placement(const ScheduleShape& shape) {
  Schedule schedule{.num_microbatches = shape.num_microbatches};
  const int num_stages = 2 * shape.num_ranks;
  for (int stage = 0; stage < num_stages; ++stage) {
    schedule.rank_of_stage.push_back(std::min(stage, num_stages - 1 - stage));
  }
  schedule.ranks.resize(static_cast<size_t>(shape.num_ranks));
  return schedule;
}

Schedule zero_bubble_v(const ScheduleShape& shape) { return in_a_v(shape, zero_bubble_v_rank); }

Schedule dualpipe_v(const ScheduleShape& shape) { return in_a_v(shape, dualpipe_v_rank); }

}  // namespace parallel
