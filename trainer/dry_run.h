#pragma once
/// One optimizer step on paper: the program's own step of one rank, on a device that computes nothing and groups that
/// send nothing. What it counts is what a run does, because it is the same code.

#include <string>
#include <vector>

#include "parallel/ledger.h"
#include "parallel/parameter.h"
#include "tensor/pool.h"
#include "trainer/batch_split.h"
#include "trainer/config.h"

namespace trainer {

/// A unit of parameters (a block, the embedding, the head), as the rank holds it.
struct PlannedUnit {
  std::string name;
  int64_t numel = 0;         ///< elements that this rank's tensor-parallel part has, padding included
  parallel::Range own = {};  ///< its cut of them, which no other rank of the shard group has
  int64_t least_cut = 0;     ///< over the shard group
  int64_t largest_cut = 0;   ///< likewise

  bool operator==(const PlannedUnit&) const = default;
};

struct PlannedMemory {
  tensor::MemoryCategory category = tensor::MemoryCategory::other;
  int64_t kept_bytes = 0;  ///< between steps
  int64_t peak_bytes = 0;  ///< within a step

  bool operator==(const PlannedMemory&) const = default;
};

/// How the layers lie on the pipeline, and what its schedule costs: of the whole pipeline, on every rank the same.
struct PlannedStage {
  int rank = 0;  ///< of the pipeline
  int64_t first_layer = 0;
  int64_t last_layer = 0;  ///< one past the last
  double share = 0;        ///< of the FLOPs of all stages

  bool operator==(const PlannedStage&) const = default;
};
struct PlannedPipeline {
  std::string schedule;
  std::string hash;  ///< of every rank's actions, 16 hex digits
  std::vector<PlannedStage> stages;
  double idle_over_ideal = 0;
  double idle_over_total = 0;
  std::vector<int> peak_live;  ///< micro-batches that each rank keeps at once, a stage at a time

  bool operator==(const PlannedPipeline&) const = default;
};

struct DryRun {
  PlannedPipeline pipeline;
  std::vector<PlannedUnit> units;
  PlannedUnit total;                  ///< of all units; own is its size only
  std::vector<PlannedMemory> memory;  ///< parameters, gradients, optimizer, activations
  parallel::Bill bill;                ///< of one optimizer step, as TrainingRun takes it
};

/// LayoutError where the config does not fit the world. Needs neither MPI nor device nor data, and no memory to speak
/// of, whatever the sizes.
DryRun dry_run(const Config& config, int world_size, int rank);

}  // namespace trainer
