#pragma once
/// How long a schedule takes, what it keeps, and whether it ends at all. Ranks work on their lists in order, one action
/// at a time (both actions of a pair at once); nothing but passes and links takes time.

#include <limits>

#include "parallel/schedule.h"

namespace parallel {

/// How messages get from rank to rank. But for `ideal`, a message begins when both ranks have come to it and it is
/// first in its queue on both.
enum class Transport {
  ideal,                ///< from the end of a pass to whoever needs it; a schedule needs no sends and receives
  blocking,             ///< a rank does nothing else from a send or receive until it is over
  queue_per_rank,       ///< a rank goes on, its messages happen in the order of its list
  queue_per_peer,       ///< in order with each other rank
  queue_per_direction,  ///< sends to a rank in order, receives from it in order
  queue_per_class,      ///< hidden states with a rank in order, gradients with it in order
};

struct SimulationOptions {
  /// Time of a pass, by stage; B takes I + W. Empty: 1 each.
  std::vector<double> forward = {};
  std::vector<double> backward_input = {};
  std::vector<double> backward_weight = {};
  double link_time = 0;  ///< of a message between two ranks
  Transport transport = Transport::ideal;
};

/// An action: its rank, and its place in the rank's list.
struct ActionPlace {
  int rank = -1;
  size_t index = 0;

  bool operator==(const ActionPlace&) const = default;
};

struct TimeSpan {
  double start = std::numeric_limits<double>::infinity();  ///< infinity: never
  double end = std::numeric_limits<double>::infinity();
};

struct Simulation {
  double makespan = 0;
  std::vector<double> busy;                  ///< by rank: time in passes
  std::vector<int> peak_live;                ///< by rank: see peak_live_microbatches()
  std::vector<std::vector<TimeSpan>> spans;  ///< by rank and place in its list; the actions of a pair share one
  /// From the first action to the last one to end: each began when the one before had ended, or its message had come.
  /// Of a pair: the forward.
  std::vector<ActionPlace> critical_path;
  /// Where each rank that cannot go on stands: a deadlock. Empty where all came to their end.
  std::vector<ActionPlace> stuck;

  double idle(int rank) const { return makespan - busy[static_cast<size_t>(rank)]; }
  double idle_over_ideal() const;  ///< of all ranks: (pp-1)/m for equal stages and 1F1B
  double idle_over_total() const;  ///< (pp-1)/(m+pp-1)
};

Simulation simulate(const Schedule& schedule, const SimulationOptions& options);

/// By rank, the most (stage, micro-batch) whose saved tensors exist at one time: from the start of F to the end of B or
/// W. Where there is no backward, to the end of F.
std::vector<int> peak_live_microbatches(const Schedule& schedule);

/// "rank 0 at 0F1, rank 1 at 1B0"
std::string stuck_text(const Schedule& schedule, const Simulation& simulation);

}  // namespace parallel
