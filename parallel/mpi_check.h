#pragma once
/// Every MPI call is checked: a failing one means that a peer or the fabric is gone.

#include <mpi.h>

#include "tensor/error.h"

namespace parallel {

using PeerLostError = tensor::ErrorOf<tensor::ExitCode::peer_lost>;

[[noreturn]] void mpi_failed(const char* call, int error);

}  // namespace parallel

#define MPI_CHECK(call)                                                                                   \
  do {                                                                                                    \
    if (const int mpi_error = (call); mpi_error != MPI_SUCCESS) ::parallel::mpi_failed(#call, mpi_error); \
  } while (false)
