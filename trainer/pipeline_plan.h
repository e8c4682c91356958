#pragma once
/// How a run's layers lie on its pipeline, and the schedule of each of its steps: everything that the executor walks is
/// made here, from the config and the mesh.

#include <map>
#include <vector>

#include "model/stage_partition.h"
#include "parallel/mesh.h"
#include "parallel/schedule_passes.h"
#include "parallel/schedule_simulator.h"
#include "trainer/config.h"

namespace trainer {

class PipelinePlan {
 public:
  /// Of a config and degrees that pipeline_problems() finds nothing wrong with.
  PipelinePlan(const Config& config, const parallel::Degrees& degrees);

  const std::vector<model::StageSpan>& spans() const { return spans_; }  ///< by stage
  const std::vector<int>& rank_of_stage() const { return rank_of_stage_; }
  /// First and last stage are on two ranks, and share a table.
  bool ties_ranks() const { return ties_ranks_; }
  /// The world's ranks that hold the shared table, for one pipeline; just `rank` where it is not one of them.
  std::vector<int> tied_ranks(const parallel::Mesh& mesh, int rank) const;

  /// An optimizer step: with what ZeRO asks for, messages and the step itself.
  struct Training {
    parallel::Schedule schedule;
    parallel::Simulation prediction;  ///< weighed by the FLOPs of each stage
  };
  const Training& training(int64_t num_microbatches) const;
  const parallel::Schedule& evaluation(int64_t num_microbatches) const;
  /// Passes alone, and when each runs: to be looked at.
  Training passes(int64_t num_microbatches) const;

 private:
  parallel::ScheduleSettings settings(int64_t num_microbatches) const;
  parallel::SimulationOptions costs() const;

  parallel::ParallelConfig config_;
  int num_ranks_;
  std::vector<int> rank_of_stage_;
  std::vector<model::StageSpan> spans_;
  model::PartCosts part_costs_;
  bool ties_ranks_;
  mutable std::map<int64_t, Training> trainings_;  // made when first asked for
  mutable std::map<int64_t, parallel::Schedule> evaluations_;
};

/// Every reason why these degrees and micro-batches make no pipeline of the config's model.
std::vector<parallel::LayoutProblem> pipeline_problems(const Config& config, const parallel::Degrees& degrees,
                                                       int64_t num_microbatches);

}  // namespace trainer
