#pragma once
/// Whether the launcher and MPI agree on how many ranks there are.

#include <string>
#include <vector>

namespace parallel {

/// A launcher's word for the size of this job. main() reads it: OMPI_COMM_WORLD_SIZE, then SLURM_STEP_NUM_TASKS.
struct LaunchClaim {
  std::string variable;
  int num_ranks = 1;
};

/// Throws LayoutError where the first claim differs from MPI's world: a missing PMI turns N ranks into N jobs of one
/// rank, each of which would train the whole run and write the same files.
void check_launch(int world_size, const std::vector<LaunchClaim>& claims);

}  // namespace parallel
