#pragma once
/// What every command that runs a model starts with: the config, checked against the launch, and a device.

#include "parallel/mpi_environment.h"
#include "tensor/ops.h"
#include "trainer/cli.h"
#include "trainer/config.h"

namespace trainer {

struct Session {
  Config config;
  tensor::Backend backend;
};

/// ConfigError or LayoutError where config, layout and launch do not fit together.
Session open_session(const RunOptions& options, const parallel::MpiEnvironment& mpi);

}  // namespace trainer
