#pragma once
/// What is added to the passes of a schedule, in this order: add_zero_actions, add_messages, add_step. Each takes a
/// schedule and returns another; none changes the order of the passes.

#include "parallel/schedule.h"

namespace parallel {

/// How ZeRO works around passes.
struct ZeroActions {
  /// When a stage's parameters are made whole.
  enum class Gather {
    per_pass,  ///< by the blocks themselves, inside a pass: no actions
    per_run,   ///< for consecutive passes of a stage on its rank
    per_step,  ///< before the stage's first pass, until the end of the step
  };
  /// After which passes a stage's gradients are summed over data-parallel ranks. Never after backward_input.
  enum class Reduce {
    per_step,  ///< the stage's last B or W
    per_pass,  ///< every B and W
    per_run,  ///< the last B or W among consecutive B, I and W of the stage (none where there are only I), and the last
  };
  Gather gather = Gather::per_pass;
  Reduce reduce = Reduce::per_step;
};

/// UNSHARD, RESHARD and REDUCE_GRAD.
///
/// REDUCE_GRAD stands right behind its pass and has the pass's micro-batch.
///
/// Gather::per_run: UNSHARD of a run stands before the last pass of the run before it, so that the one is gathered
/// while the other works (the first run's stands before its own first pass); RESHARD right behind the run's last pass.
/// A stage that would be given back only to be gathered at once, because the run in between is a single pass, stays.
/// The two passes of an overlapped pair count as one pass of both stages. So a rank holds the stages of one pass and of
/// the next.
Schedule add_zero_actions(const Schedule& passes, const ZeroActions& actions);

/// SEND and RECV for every hidden state and gradient that crosses ranks. Both ends of a message are placed at the same
/// point of one order of all passes, which is a way to run the schedule: so no transport that keeps the order of a
/// rank's messages can hang, a fully blocking one included. That order is round robin: on its turn a rank runs its next
/// pass (or pair) if what that needs is there. Other actions stay with their pass: UNSHARD before it, the rest behind
/// it; SEND comes after REDUCE_GRAD, which is part of the pass, and before all else.
Schedule add_messages(const Schedule& schedule);

/// Whether first and last stage share a table (tied embeddings).
enum class SharedTable { none, first_and_last_stage };

/// At the end of every rank: REDUCE_TIED on the ranks of the first and last stage where these share a table and are two
/// ranks; STEP.
Schedule add_step(const Schedule& schedule, SharedTable table);

}  // namespace parallel
