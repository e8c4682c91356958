#pragma once
/// Communicators on paper: they record what real ones would and move nothing. A rank's step on them, with the paper
/// backend (tensor/ops.h), yields its bill in a world of any size, on one machine, without MPI.

#include "parallel/communicator_factory.h"
#include "parallel/ledger.h"

namespace parallel {

/// Makes the groups of `world_rank`. Its calls are done when they return; they leave their operands alone.
class PaperCommunicatorFactory final : public CommunicatorFactory {
 public:
  /// Borrows the ledger, which outlives every communicator.
  PaperCommunicatorFactory(int world_rank, int world_size, Ledger& ledger);

  int world_rank() const { return world_rank_; }
  int world_size() const { return world_size_; }
  std::unique_ptr<Communicator> make(std::string axis, const std::vector<int>& ranks) override;

 private:
  int world_rank_;
  int world_size_;
  Ledger& ledger_;
};

}  // namespace parallel
