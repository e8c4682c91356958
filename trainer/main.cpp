/// The executable: arguments in, exit code out. Commands that run a model live inside MPI; the others start without it.

#include <cstdio>
#include <exception>

#include "data/byte_file.h"
#include "trainer/commands.h"
#include "trainer/launch_environment.h"

namespace {

using tensor::ExitCode;

/// main() for commands of one process: says what was thrown, and gives its exit code.
template <class Body>
int guarded(const Body& body) {
  try {
    return static_cast<int>(body());
  } catch (const tensor::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n  This is a bug in trainer, not in your run.\n", error.what());
    return static_cast<int>(ExitCode::internal);
  }
}

template <class Command>
concept RunsAModel = requires(const Command& command, const parallel::MpiEnvironment& mpi) {
  trainer::run(command, mpi);
};

/// --threads comes first, then OMP_NUM_THREADS, then what the cores and the ranks on them suggest.
template <RunsAModel Command>
ExitCode run_inside_mpi(Command command) {
  if (command.run.num_threads == 0) command.run.num_threads = trainer::requested_threads();
  const trainer::Peers peers = trainer::peers_of_this_task();
  if (peers == trainer::Peers::missing_said_by_another) return ExitCode::layout;
  if (peers == trainer::Peers::missing) parallel::check_launch(/*world_size=*/1, trainer::launch_claims());
  trainer::prepare_for_mpi();
  parallel::MpiEnvironment mpi;
  return static_cast<ExitCode>(mpi.run([&] {
    parallel::check_launch(mpi.world_size(), trainer::launch_claims());
    return static_cast<int>(trainer::run(command, mpi));
  }));
}

int dispatch(const trainer::Command& command) {
  return std::visit(
      []<class Kind>(const Kind& kind) {
        if constexpr (RunsAModel<Kind>) {
          return guarded([&] { return run_inside_mpi(kind); });
        } else {
          return guarded([&] { return trainer::run(kind); });
        }
      },
      command);
}

/// What was printed is part of what was asked for: a full disk behind "> file" is no success.
ExitCode flush_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return ExitCode::finished;
  throw tensor::StorageError(
      "The output could not be written.\n  Fix: free space where standard output goes to, or choose another place.");
}

}  // namespace

int main(int argc, char** argv) {
  data::install_sigbus_handler();
  trainer::Command command;
  const int parsed = guarded([&] {
    command = trainer::parse_command_line({argv + 1, argv + argc});
    return ExitCode::finished;
  });
  const int ended = parsed != 0 ? parsed : dispatch(command);
  return ended != 0 ? ended : guarded(flush_output);
}
