#pragma once
/// What MpiCommunicatorFactory makes. Use the factory; it shares channels between groups of the same ranks.

#include <memory>
#include <string>

#include "parallel/communicator.h"
#include "parallel/ledger.h"
#include "parallel/mpi_channel.h"

namespace parallel {

std::unique_ptr<Communicator> make_mpi_communicator(std::string axis, std::shared_ptr<MpiChannel> channel,
                                                    Ledger& ledger, int64_t small_all_reduce_bytes);

}  // namespace parallel
