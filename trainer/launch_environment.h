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

/// Whether the tasks of an srun step can find each other: missing where srun started several without PMI, each of which
/// would be a world of its own. To be asked before MPI starts: Open MPI ends such a process inside MPI_Init, with words
/// and an exit code of its own. Task 0 is to say so for all.
enum class Peers { fine, missing, missing_said_by_another };
Peers peers_of_this_task();

/// Before MPI starts: a rank that no launcher started has no peers, so Open MPI is told not to start its daemon and not
/// to look for networks, which takes longer than all the rest of a start (0.3 s of 0.4 s). What the user set stays, and
/// so does everything under a launcher. A step of one task without PMI is no launcher: Open MPI has to be kept from
/// looking for one there.
void prepare_for_mpi();

}  // namespace trainer
