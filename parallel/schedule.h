#pragma once
/// Pipeline schedules as data: for every pipeline rank, the list of what it does in one optimizer step. A schedule is a
/// pure function of its settings. Passes (schedule_passes.h) add what ZeRO and messages need, the simulator
/// (schedule_simulator.h) says how long it takes and what it keeps, and one executor walks it, pp = 1 included.
///
/// Text form, one line per rank, actions between spaces: "0F1" is stage 0's forward of micro-batch 1.
///   F, B            forward, whole backward                 SEND_F, RECV_F   hidden states to / from a neighbour stage
///   I, W            backward of inputs, of weights          SEND_B, RECV_B   their gradients, the other way
///   UNSHARD, RESHARD  a stage's parameters, whole and given back (ZeRO-3)
///   REDUCE_GRAD     what the backward just before it completes is summed over data-parallel ranks, block by block
///   REDUCE_TIED     the gradient of a table that first and last stage share;  STEP  the optimizer's
///   (1F3+2B0)       a forward and a backward that may overlap (DualPipe)

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/layout.h"

namespace parallel {

enum class ActionKind {
  forward,
  backward,
  backward_input,
  backward_weight,
  send_forward,
  receive_forward,
  send_backward,
  receive_backward,
  unshard,
  reshard,
  reduce_grad,
  reduce_tied,
  step,
};
constexpr int kNumActionKinds = 13;

struct Action {
  ActionKind kind = ActionKind::forward;
  int stage = 0;
  int microbatch = 0;          ///< of passes and messages
  bool overlaps_next = false;  ///< a forward, and the backward after it, as one pair

  bool operator==(const Action&) const = default;
};

/// One step of a pipeline.
struct Schedule {
  int num_microbatches = 0;
  std::vector<int> rank_of_stage = {};          ///< by stage
  std::vector<std::vector<Action>> ranks = {};  ///< by pipeline rank

  int num_ranks() const { return static_cast<int>(ranks.size()); }
  int num_stages() const { return static_cast<int>(rank_of_stage.size()); }
  bool operator==(const Schedule&) const = default;
};

struct ScheduleSettings {
  std::string name = "1f1b";  ///< gpipe, 1f1b, interleaved, bfs, zb_h1, interleaved_zb, zb_v, dualpipe_v, file:PATH
  int num_ranks = 1;          ///< pp
  int num_microbatches = 1;   ///< any, where the schedule allows it: fewer than ranks too
  int virtual_stages = 0;     ///< stages per rank; 0: what the schedule is usually run with (1 or 2)
  int microbatch_group = 0;   ///< interleaved schedules: micro-batches per visit of a stage; 0: the least that fits
};

/// The names that settings may have, file: aside.
const std::vector<std::string>& schedule_names();
/// What virtual_stages = 0 means for this schedule. Of a file: stages / ranks, as it says.
int default_virtual_stages(const std::string& name);

/// Every reason why these settings make no schedule, with the rule and the nearest settings that do.
std::vector<LayoutProblem> schedule_problems(const ScheduleSettings& settings);

/// Passes only: F, B, I and W. LayoutError where schedule_problems() finds any; ConfigError where a file cannot be
/// read.
Schedule make_schedule(const ScheduleSettings& settings);
/// The same placement of stages, forwards only: evaluation.
Schedule make_forward_schedule(const ScheduleSettings& settings);

std::string to_string(ActionKind kind);  ///< "forward", "send_backward"
std::string to_text(const Action& action);
std::string to_text(const Schedule& schedule);
/// ConfigError that names `place` (a file), the line and the word.
Schedule schedule_from_text(const std::string& text, const std::string& place);

/// Every way in which a schedule is no step of a pipeline: a pass missing or twice, a stage on two ranks, a backward
/// before its forward, a cycle between ranks, a send without its receive. Whole sentences.
std::vector<std::string> schedule_faults(const Schedule& schedule);

/// Of all ranks' lists; ranks of one run compare it.
uint64_t schedule_hash(const Schedule& schedule);

}  // namespace parallel
