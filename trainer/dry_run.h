#pragma once
/// One optimizer step on paper: the program's own step of one rank, on a device that computes nothing and groups that
/// send nothing. What it counts is what a run does, because it is the same code.

#include <string>
#include <vector>

#include "parallel/ledger.h"
#include "parallel/parameter.h"
#include "tensor/pool.h"
#include "trainer/config.h"

namespace trainer {

/// A unit of parameters (a block, the embedding, the head), as the rank holds it.
struct PlannedUnit {
  std::string name;
  int64_t numel = 0;        ///< elements that this rank's tensor-parallel part has, padding included
  parallel::Range own;      ///< its cut of them, which no other rank of the shard group has
  int64_t least_cut = 0;    ///< over the shard group
  int64_t largest_cut = 0;  ///< likewise

  bool operator==(const PlannedUnit&) const = default;
};

struct PlannedMemory {
  tensor::MemoryCategory category = tensor::MemoryCategory::other;
  int64_t kept_bytes = 0;  ///< between steps
  int64_t peak_bytes = 0;  ///< within a step

  bool operator==(const PlannedMemory&) const = default;
};

struct DryRun {
  std::vector<PlannedUnit> units;
  PlannedUnit total;                  ///< of all units; own is its size only
  std::vector<PlannedMemory> memory;  ///< parameters, gradients, optimizer, activations
  parallel::Bill bill;                ///< of one optimizer step, as TrainingRun takes it
};

/// LayoutError where the config does not fit the world. Needs neither MPI nor device nor data, and no memory to speak
/// of, whatever the sizes.
DryRun dry_run(const Config& config, int world_size, int rank);

/// How a rank's part of a step is cut.
struct BatchSplit {
  int64_t sequences_per_rank = 0;
  int64_t micro_batch_size = 0;  ///< sequences
  int64_t num_microbatches = 0;

  bool operator==(const BatchSplit&) const = default;
};
BatchSplit split_batch(const Config& config, int num_data_ranks);

}  // namespace trainer
