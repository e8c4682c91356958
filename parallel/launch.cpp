#include "parallel/launch.h"

#include "tensor/error.h"

namespace parallel {

void check_launch(int world_size, const std::vector<LaunchClaim>& claims) {
  if (claims.empty() || claims.front().num_ranks == world_size) return;
  const LaunchClaim& claim = claims.front();
  throw tensor::LayoutError(fmt::format(
      "the launcher says {} = {}, but MPI sees a world of {}.\n"
      "  The processes do not know of each other; each would train the whole run and write the same files.\n"
      "  Fix: use the launcher of the MPI library that trainer was built with: \"srun --mpi=pmix\" (\"srun "
      "--mpi=list\"\n"
      "  shows what this cluster has), or its own mpirun.",
      claim.variable, claim.num_ranks, world_size));
}

}  // namespace parallel
