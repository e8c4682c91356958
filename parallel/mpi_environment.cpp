#include "parallel/mpi_environment.h"

#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "parallel/mpi_check.h"

namespace parallel {
namespace {

/// How long ranks other than 0 leave the word to rank 0.
constexpr std::chrono::milliseconds kPatience{2000};

std::string host_name() {
  char name[MPI_MAX_PROCESSOR_NAME];
  int length = 0;
  MPI_CHECK(MPI_Get_processor_name(name, &length));
  return {name, static_cast<size_t>(length)};
}

}  // namespace

void mpi_failed(const char* call, int error) {
  char reason[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(error, reason, &length) != MPI_SUCCESS) length = 0;
  throw PeerLostError(
      fmt::format("{} failed: {}.\n  A peer process ended or the network between the ranks broke.\n"
                  "  Fix: look for the first error of the other ranks; then start again, training resumes from the "
                  "last checkpoint.",
                  call, std::string(reason, static_cast<size_t>(length))));
}

MpiEnvironment::MpiEnvironment() {
  int thread_level = 0;
  MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &thread_level));
  MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  CHECK(thread_level >= MPI_THREAD_FUNNELED, "this MPI library supports threads (level {})", thread_level);
  MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank_));
  MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &world_size_));
  MPI_Comm node = MPI_COMM_NULL;
  MPI_CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world_rank_, MPI_INFO_NULL, &node));
  MPI_CHECK(MPI_Comm_rank(node, &local_rank_));
  MPI_CHECK(MPI_Comm_size(node, &local_size_));
  MPI_CHECK(MPI_Comm_free(&node));
  host_ = host_name();
}

MpiEnvironment::~MpiEnvironment() {
  if (std::uncaught_exceptions() > 0 && world_size_ > 1) abort(static_cast<int>(tensor::ExitCode::internal));
  MPI_Finalize();
}

int MpiEnvironment::run(const std::function<int()>& body) {
  try {
    return body();
  } catch (const tensor::Error& error) {
    return fail(error.what(), error.code());
  } catch (const std::exception& error) {
    return fail(fmt::format("{}\n  This is a bug in trainer, not in your run.", error.what()),
                tensor::ExitCode::internal);
  }
}

int MpiEnvironment::fail(const std::string& message, tensor::ExitCode code) {
  if (world_size_ == 1) {
    std::fprintf(stderr, "%s\n", message.c_str());
    return static_cast<int>(code);
  }
  if (world_rank_ != 0) std::this_thread::sleep_for(kPatience);
  const std::string text = fmt::format("[rank {}/{}, node {}] {}\n", world_rank_, world_size_, host_, message);
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
  abort(static_cast<int>(code));
}

void MpiEnvironment::abort(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace parallel
