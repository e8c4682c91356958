#pragma once
/// What every command that runs a model starts with: the config, checked against the launch, a device, and the groups
/// of this rank. Before these are made, all ranks know that they follow one plan.

#include "parallel/mpi_communicator_factory.h"
#include "parallel/mpi_environment.h"
#include "tensor/ops.h"
#include "trainer/cli.h"
#include "trainer/rank_context.h"

namespace trainer {

struct Session {
  /// ConfigError or LayoutError where config, layout and launch do not fit together.
  Session(const RunOptions& options, const parallel::MpiEnvironment& mpi);
  Session(const Session&) = delete;

  Config config;
  tensor::Backend backend;
  parallel::Ledger ledger;
  parallel::EventLog events;
  parallel::MpiCommunicatorFactory factory;
  RankContext context;
};

}  // namespace trainer
