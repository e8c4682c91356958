#pragma once
/// Schedules for tests, and what the literature and our own rules say about them.

#include <array>
#include <string>
#include <vector>

#include "parallel/schedule.h"
#include "parallel/schedule_simulator.h"
#include "parallel/schedule_walk.h"

namespace parallel {

constexpr std::array<Transport, 5> kMessageTransports = {Transport::blocking, Transport::queue_per_rank,
                                                         Transport::queue_per_peer, Transport::queue_per_direction,
                                                         Transport::queue_per_class};

inline Schedule make(const std::string& name, int num_ranks, int virtual_stages, int num_microbatches, int group = 0) {
  return make_schedule({name, num_ranks, num_microbatches, virtual_stages, group});
}

/// The obvious placement of messages, which is wrong: a receive right before the pass that needs it, a send right
/// behind the pass that makes it.
inline Schedule with_naive_messages(const Schedule& passes) {
  Schedule result = passes;
  const auto crosses = [&](int stage, int other) {
    if (other < 0 || other >= passes.num_stages()) return false;
    return passes.rank_of_stage[static_cast<size_t>(stage)] != passes.rank_of_stage[static_cast<size_t>(other)];
  };
  for (size_t rank = 0; rank < passes.ranks.size(); ++rank) {
    const std::vector<Action>& list = passes.ranks[rank];
    std::vector<Action> with;
    for (size_t i = 0; i < list.size();) {
      const size_t end = i + block_length(list, i);
      std::vector<Action> sends;
      const auto message = [&](std::vector<Action>& to, ActionKind kind, const Action& pass, int other) {
        if (crosses(pass.stage, other)) to.push_back({kind, pass.stage, pass.microbatch});
      };
      for (size_t j = i; j < end; ++j) {
        const Action& pass = list[j];
        if (pass.kind == ActionKind::forward) {
          message(with, ActionKind::receive_forward, pass, pass.stage - 1);
          message(sends, ActionKind::send_forward, pass, pass.stage + 1);
        } else if (makes_input_grad(pass.kind)) {
          message(with, ActionKind::receive_backward, pass, pass.stage + 1);
          message(sends, ActionKind::send_backward, pass, pass.stage - 1);
        }
      }
      for (; i < end; ++i) with.push_back(list[i]);
      with.insert(with.end(), sends.begin(), sends.end());
    }
    result.ranks[rank] = with;
  }
  return result;
}

}  // namespace parallel
