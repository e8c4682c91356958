#pragma once
/// Table [parallel] of a run config: how a run is split over its ranks. Changing it changes nothing else about the run.

#include <cstdint>
#include <string>
#include <vector>

namespace parallel {

/// When ZeRO-3 gives back gathered values. forward: after each pass of a block (two gathers a micro-batch). never:
/// after its backward only (one, and more memory). stage: a pipeline stage is gathered as one, kept over all its passes
/// that follow one another, and under stages 2 and 3 its gradients are summed after the last of these; with the
/// schedule bfs, that is once per stage and direction.
enum class Reshard { forward, never, stage };

/// When gradients are summed over data-parallel ranks. zero_stage 2 and 3 must do it every micro-batch; with the others
/// doing so too, all stages give bitwise the same numbers, for more communication.
enum class ReduceEvery { step, micro_batch };

/// How attention sees tokens of other sequence-parallel ranks. ring: keys and values go round, block after block.
/// ulysses: tokens are exchanged for heads. all_gather: every rank gathers all keys and values.
enum class SpMethod { ring, ulysses, all_gather };

/// Ranks = tp * sp * pp * dp. Sizes that follow from these are computed in the plan.
struct ParallelConfig {
  int64_t tp = 1;  ///< tensor-parallel ranks: each holds a part of every matrix
  int64_t sp = 1;  ///< sequence-parallel ranks: each holds a part of every sequence
  SpMethod sp_method = SpMethod::ring;
  int64_t pp = 1;          ///< pipeline stages: each holds a part of the layers
  int64_t dp = 0;          ///< data-parallel ranks: each sees a part of the batch; 0 ("auto"): fill the world
  int64_t dp_out = 1;      ///< outer part of dp: a whole number of copies of the inner group
  int64_t ep = 1;          ///< expert-parallel ranks, taken from tp * sp * dp: never multiplies the world
  int64_t expert_tp = 1;   ///< tensor-parallel ranks inside one expert
  int64_t zero_stage = 0;  ///< split over dp: 1 optimizer state, 2 and gradients, 3 and parameters; 0: nothing
  Reshard zero_reshard = Reshard::forward;       ///< of zero_stage = 2 and 3
  ReduceEvery reduce_every = ReduceEvery::step;  ///< of zero_stage = 0 and 1
  double bucket_mb = 0;                          ///< most that one gradient reduction moves, in 2^20 bytes; 0: a block
  bool tp_sequence = false;                      ///< between products, tp ranks hold a part of the tokens each

  std::string schedule = "1f1b";  ///< order of the passes of pipeline stages: see schedule.h
  int64_t virtual_stages = 0;     ///< stages per pipeline rank; 0 ("auto"): what the schedule is usually run with
  int64_t microbatch_group = 0;   ///< interleaved schedules: micro-batches per visit of a stage; 0 ("auto"): the least
  std::vector<int64_t> stages = {};  ///< layers of each stage; empty: shared out by cost
};

}  // namespace parallel
