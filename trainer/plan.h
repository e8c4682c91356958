#pragma once
/// What a run will do, before it does it: a pure function of the config and the number of ranks. It needs no MPI, no
/// device and no data. The run itself writes it into its folder, and its ledger then counts the same bill.

#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "trainer/dry_run.h"

namespace trainer {

/// A group that the rank talks in, with more than one rank.
struct PlannedGroup {
  std::vector<std::string> names;  ///< kinds of groups that have these ranks: "dp_in", "zero", ...
  int size = 0;
  std::string ranks;  ///< "0, 8, ..., 120"

  bool operator==(const PlannedGroup&) const = default;
};

/// Of one rank. Ranks differ in their groups, in what ZeRO's cuts leave them, and by a part of the vocabulary that tp
/// does not divide.
struct Plan {
  int world_size = 1;
  int rank = 0;
  parallel::Degrees degrees;
  std::vector<PlannedGroup> groups;
  int64_t zero_stage = 0;
  tensor::Dtype compute = tensor::Dtype::fp32;
  int64_t num_parameters = 0;  ///< of the model
  int64_t global_batch_size = 0;
  int64_t seq_len = 0;
  BatchSplit split;
  PlannedPipeline pipeline;
  std::vector<PlannedUnit> units;
  PlannedUnit total;
  std::vector<PlannedMemory> memory;
  parallel::Bill bill;  ///< what this rank's groups move in one optimizer step

  bool operator==(const Plan&) const = default;
};

/// LayoutError where the config does not fit the world, or the rank is not in it.
Plan make_plan(const Config& config, int world_size, int rank = 0);

/// Ranks that the config's degrees ask for; dp = "auto" counts as the least that dp_out allows.
int default_world_size(const parallel::ParallelConfig& config);

/// What the ledger of this rank counts in one optimizer step, agree() included; evaluations and checkpoints come on
/// top of it.
parallel::Bill planned_bill(const Config& config, int world_size, int rank);

std::string to_json(const Plan& plan);          ///< one object, indented
Plan plan_from_json(const std::string& text);   ///< what to_json() wrote
std::string to_text(const Plan& plan);          ///< tables for people
std::string plan_hash(const Plan& plan);        ///< 16 hex digits, of the JSON
std::string layout_in_words(const Plan& plan);  ///< "16 ranks = tp 2 * dp_in 8, zero_stage 1"

}  // namespace trainer
