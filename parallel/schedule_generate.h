#pragma once
/// The order rules of the named schedules. Internal: make_schedule() picks one and checks what it is told.
///
/// `rank` of num_ranks is a pipeline rank. Sources: GPipe arXiv 1811.06965, 1F1B 2006.09503, interleaved 2104.04473,
/// breadth-first 2211.05953, ZB-H1 2401.10241, ZB-V 2405.15362, DualPipeV: the cut-in-half form of DualPipe 2412.19437.

#include "parallel/schedule.h"

namespace parallel {

/// Settings that were checked. No number is 0.
struct ScheduleShape {
  int num_ranks = 1;
  int num_microbatches = 1;
  int virtual_stages = 1;
  int microbatch_group = 1;  ///< at most num_microbatches
};

/// A schedule without actions. In a loop stage s is on rank s % num_ranks; in a V, stages 0, 1, ... go down the ranks
/// and the second half comes back up, so that rank 0 has the first and the last.
Schedule loop_placement(const ScheduleShape& shape);
Schedule v_placement(const ScheduleShape& shape);

/// The least group of at least num_ranks that leaves no last group smaller than num_ranks; all micro-batches where
/// they are fewer than ranks.
int default_microbatch_group(int num_ranks, int num_microbatches);

/// All forwards, then all backwards, both from micro-batch 0 on.
Schedule gpipe(const ScheduleShape& shape);
/// As few forwards ahead as keep the next rank busy, then forward and backward in turn.
Schedule one_forward_one_backward(const ScheduleShape& shape);
/// The same, where a rank visits each of its stages for a group of micro-batches. Rank r runs 2 (P-1-r) forwards ahead,
/// beside a group for every stage but the last.
Schedule interleaved(const ScheduleShape& shape);
/// All forwards stage after stage, then backwards from the last stage and micro-batch to the first: a stage's weights
/// are used once in each direction.
Schedule breadth_first(const ScheduleShape& shape);
/// 1F1B whose backwards are split. On rank r the weights follow the inputs by r micro-batches, which fills the gaps.
Schedule zero_bubble_h1(const ScheduleShape& shape);
/// Interleaved with as few forwards ahead as 1F1B, split in the same way.
Schedule interleaved_zero_bubble(const ScheduleShape& shape);
/// Two stages a rank in a V: no gap between the first and the last pass of a rank where F, I and W take equally long.
Schedule zero_bubble_v(const ScheduleShape& shape);
/// Two stages a rank in a V; a forward of one and a backward of the other are one pair, whose messages and math
/// overlap. Needs two micro-batches a rank.
Schedule dualpipe_v(const ScheduleShape& shape);

}  // namespace parallel
