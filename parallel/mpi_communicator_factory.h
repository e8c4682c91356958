#pragma once
/// Communicators over MPI, in host memory.
///
/// Reductions exchange parts and add them in rank order, so that no bit depends on timing or on what MPI would choose:
/// an all_reduce is a reduce_scatter and an all_gather of nearly equal parts (small ones: everybody's whole x to
/// everybody). Calls of one group match by the order of issue; they may be waited on in any order. Messages between
/// two ranks of a group match in the order of issue per direction.

#include <memory>
#include <vector>

#include "parallel/communicator_factory.h"
#include "parallel/ledger.h"
#include "parallel/mpi_environment.h"

namespace parallel {

struct MpiOptions {
  /// Ranks of MPI_COMM_WORLD that make up this world, in its rank order. Empty: all.
  std::vector<int> world_ranks;
  int64_t max_message_bytes = int64_t{1} << 30;  ///< longer ones are cut: MPI counts are ints
  int64_t small_all_reduce_bytes = 4096;         ///< up to here one round of whole buffers beats two of parts
};

class MpiCommunicatorFactory final : public CommunicatorFactory {
 public:
  /// Borrows the environment and the ledger, which outlive every communicator.
  MpiCommunicatorFactory(const MpiEnvironment& environment, Ledger& ledger, MpiOptions options = {});
  ~MpiCommunicatorFactory() override;

  int world_rank() const;  ///< of this process in options.world_ranks; CHECKs that it is there
  int world_size() const;
  std::unique_ptr<Communicator> make(std::string axis, const std::vector<int>& ranks) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace parallel
