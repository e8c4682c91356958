/// The executable: arguments in, exit code out. Commands that run a model live inside MPI; the others start without it.

#include <cstdio>
#include <exception>

#include "data/byte_file.h"
#include "trainer/commands.h"

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

int dispatch(const trainer::Command& command) {
  return std::visit(
      []<class Kind>(const Kind& kind) {
        if constexpr (RunsAModel<Kind>) {
          return guarded([&] {
            parallel::MpiEnvironment mpi;
            return static_cast<ExitCode>(mpi.run([&] { return static_cast<int>(trainer::run(kind, mpi)); }));
          });
        } else {
          return guarded([&] { return trainer::run(kind); });
        }
      },
      command);
}

}  // namespace

int main(int argc, char** argv) {
  data::install_sigbus_handler();
  trainer::Command command;
  const int parsed = guarded([&] {
    command = trainer::parse_command_line({argv + 1, argv + argc});
    return ExitCode::finished;
  });
  return parsed != 0 ? parsed : dispatch(command);
}
