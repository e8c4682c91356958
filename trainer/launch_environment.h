#pragma once
/// What the launcher left in the environment. For main() alone: nothing else reads or changes it.

#include <cstdint>
#include <vector>

#include "parallel/launch.h"

namespace trainer {

/// What mpirun, or else srun, says of the size of this job. Empty where the program was started bare.
std::vector<parallel::LaunchClaim> launch_claims();

/// Threads per rank that OMP_NUM_THREADS asks for: its first number. 0 where it is not set, or no positive number.
int64_t requested_threads();

/// Before MPI starts: a rank that no launcher started has no peers, so Open MPI is told not to start its daemon and not
/// to look for networks, which takes longer than all the rest of a start (0.3 s of 0.4 s). What the user set stays, and
/// so does everything under a launcher.
void prepare_for_mpi();

}  // namespace trainer
