#pragma once
/// What each command of the command line does. Errors are thrown; main() turns them into messages and exit codes.

#include "parallel/mpi_environment.h"
#include "trainer/cli.h"

namespace trainer {

/// Commands that run a model: every rank of the launch calls this.
tensor::ExitCode run(const TrainCommand& command, const parallel::MpiEnvironment& mpi);
tensor::ExitCode run(const EvalCommand& command, const parallel::MpiEnvironment& mpi);
tensor::ExitCode run(const SampleCommand& command, const parallel::MpiEnvironment& mpi);
tensor::ExitCode run(const VerifyCommand& command, const parallel::MpiEnvironment& mpi);

/// Commands for one process.
tensor::ExitCode run(const PlanCommand& command);
tensor::ExitCode run(const DataBuildCommand& command);
tensor::ExitCode run(const DataInspectCommand& command);
tensor::ExitCode run(const CheckpointCommand& command);
tensor::ExitCode run(const ShowText& command);

}  // namespace trainer
