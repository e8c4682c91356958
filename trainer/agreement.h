#pragma once
/// What all ranks must decide alike after a step, though they see different clocks and signals.

#include "parallel/communicator.h"

namespace trainer {

struct Agreement {
  bool save_is_due = false;  ///< by rank 0's clock
  int signal = 0;            ///< that any rank received; 0: none
  bool is_saving = false;    ///< any rank still writes a checkpoint
};

/// Every rank brings what it sees, and gets what holds for all.
Agreement agree(const Agreement& own, parallel::Communicator& world, tensor::Device& device);

}  // namespace trainer
