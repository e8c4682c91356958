#include "trainer/session.h"

#include "trainer/config_reader.h"

namespace trainer {

namespace {

tensor::Backend open_backend(const RunOptions& options, const parallel::MpiEnvironment& mpi) {
  if (options.device == DeviceChoice::cuda) {
    throw tensor::LayoutError(
        "--device cuda: this build has no CUDA backend that trains a model.\n  Fix: use --device cpu.");
  }
  return tensor::make_cpu_backend(
      {.num_threads = static_cast<int>(options.num_threads), .ranks_on_node = mpi.local_size()});
}

void require_one_rank(const parallel::MpiEnvironment& mpi) {
  if (mpi.world_size() == 1) return;
  throw tensor::LayoutError(
      fmt::format("The launcher started {} ranks, but this version trains on one.\n"
                  "  Fix: start trainer without mpirun or srun, or with one rank; it uses all cores by threads.",
                  mpi.world_size()));
}

}  // namespace

Session open_session(const RunOptions& options, const parallel::MpiEnvironment& mpi) {
  require_one_rank(mpi);
  Session session;
  session.config = load_config(options.config, options.overrides);
  session.backend = open_backend(options, mpi);
  return session;
}

}  // namespace trainer
