/// What failing_ranks_test.py launches: a program of which one rank, or every rank, fails.

#include <mpi.h>

#include <stdexcept>
#include <string>

#include "parallel/mpi_environment.h"

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  parallel::MpiEnvironment environment;
  const auto body = [&] {
    if (mode == "every_rank") throw tensor::LayoutError("tp = 3 does not fit.");
    if (environment.world_rank() == environment.world_size() - 1) {
      if (mode == "last_rank") throw tensor::DataError("the file is short.");
      if (mode == "bug") throw std::runtime_error("out of range");
      if (mode == "abort") environment.abort(75);
    }
    if (mode != "none") MPI_Barrier(MPI_COMM_WORLD);  // where the others wait for ever
    return 0;
  };
  return environment.run(body);
}
