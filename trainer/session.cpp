#include "trainer/session.h"

#include "parallel/traced_communicator.h"
#include "trainer/config_reader.h"
#include "trainer/plan_agreement.h"

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

RankContext agreed_context(const Config& config, parallel::MpiCommunicatorFactory& factory, const RankRecords& records,
                           tensor::Device& device) {
  require_same_plan(make_plan(config, factory.world_size()), config, factory, device);
  if (!config.log.trace) return RankContext(config, factory.world_rank(), factory.world_size(), factory, records);
  parallel::TracingCommunicatorFactory tracing(factory, *records.events);
  return RankContext(config, factory.world_rank(), factory.world_size(), tracing, records);
}

}  // namespace

Session::Session(const RunOptions& options, const parallel::MpiEnvironment& mpi)
    : config(load_config(options.config, options.overrides)),
      backend(open_backend(options, mpi)),
      factory(mpi, ledger),
      context(agreed_context(config, factory, {.ledger = ledger, .events = config.log.trace ? &events : nullptr},
                             *backend.device)) {}

}  // namespace trainer
