#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <memory>

#include "parallel/mpi_check.h"
#include "tests/support/rank_test.h"

namespace tests {
namespace {

const parallel::MpiEnvironment* running = nullptr;

/// What ranks other than 0 print: failures, with the rank.
class FailurePrinter : public ::testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "[rank %d] %s:%d: %s\n", running->world_rank(),
                 result.file_name() ? result.file_name() : "unknown file", result.line_number(), result.summary());
  }
};

int run_all_tests() {
  if (running->world_rank() != 0) {
    ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter);
  }
  int failed = RUN_ALL_TESTS();
  MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
  return failed;
}

}  // namespace

const parallel::MpiEnvironment& mpi_environment() { return *running; }

}  // namespace tests

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::GTEST_FLAG(catch_exceptions) = false;  // one rank's exception ends all, rather than leave them waiting
  parallel::MpiEnvironment environment;
  tests::running = &environment;
  return environment.run(tests::run_all_tests);
}
