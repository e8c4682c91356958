#pragma once
/// Table [parallel] of a run config: how a run is split over its ranks. Changing it changes nothing else about the run.

#include <cstdint>

namespace parallel {

/// When ZeRO-3 gives back gathered values: after each forward and each backward (two gathers a micro-batch), or only
/// after backward (one, and more memory).
enum class Reshard { forward, never };

/// When gradients are summed over data-parallel ranks. zero_stage 2 and 3 must do it every micro-batch; with the others
/// doing so too, all stages give bitwise the same numbers, for more communication.
enum class ReduceEvery { step, micro_batch };

/// Ranks = tp * sp * pp * dp. Sizes that follow from these are computed in the plan.
struct ParallelConfig {
  int64_t tp = 1;          ///< tensor-parallel ranks: each holds a part of every matrix
  int64_t sp = 1;          ///< sequence-parallel ranks: each holds a part of every sequence
  int64_t pp = 1;          ///< pipeline stages: each holds a part of the layers
  int64_t dp = 0;          ///< data-parallel ranks: each sees a part of the batch; 0 ("auto"): fill the world
  int64_t dp_out = 1;      ///< outer part of dp: a whole number of copies of the inner group
  int64_t ep = 1;          ///< expert-parallel ranks, taken from tp * sp * dp: never multiplies the world
  int64_t expert_tp = 1;   ///< tensor-parallel ranks inside one expert
  int64_t zero_stage = 0;  ///< split over dp: 1 optimizer state, 2 and gradients, 3 and parameters; 0: nothing
  Reshard zero_reshard = Reshard::forward;       ///< of zero_stage = 3
  ReduceEvery reduce_every = ReduceEvery::step;  ///< of zero_stage = 0 and 1
  bool tp_sequence = false;                      ///< between products, tp ranks hold a part of the tokens each
};

}  // namespace parallel
