#pragma once
/// Tests that run as several MPI processes (`add_rank_test`): every rank runs every test, in the same order.
/// EXPECT, never ASSERT, before a collective: a rank that leaves early would leave its peers waiting.

#include "parallel/mpi_environment.h"

namespace tests {

/// Of the running test program.
const parallel::MpiEnvironment& mpi_environment();

}  // namespace tests
