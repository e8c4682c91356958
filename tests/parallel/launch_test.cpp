#include "parallel/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/error.h"

namespace parallel {
namespace {

TEST(Launch, AcceptsALauncherThatAgreesOrSaysNothing) {
  check_launch(4, {});
  check_launch(4, {{"OMPI_COMM_WORLD_SIZE", 4}});
  check_launch(1, {{"SLURM_STEP_NUM_TASKS", 1}});
}

TEST(Launch, BelievesTheInnermostLauncher) {
  // mpirun inside a Slurm allocation: the step has one daemon a node.
  check_launch(8, {{"OMPI_COMM_WORLD_SIZE", 8}, {"SLURM_STEP_NUM_TASKS", 2}});
}

TEST(Launch, RefusesRanksThatDoNotKnowOfEachOther) {
  try {
    check_launch(1, {{"SLURM_STEP_NUM_TASKS", 4}});
    FAIL() << "nothing was thrown";
  } catch (const tensor::LayoutError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("SLURM_STEP_NUM_TASKS = 4, but MPI sees a world of 1"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("--mpi=pmix"));
  }
}

}  // namespace
}  // namespace parallel
