#pragma once
/// How a step's batch is cut: over data-parallel ranks, then into micro-batches.

#include <cstdint>

#include "trainer/config.h"

namespace trainer {

/// A rank's part of a step.
struct BatchSplit {
  int64_t sequences_per_rank = 0;
  int64_t micro_batch_size = 0;  ///< sequences
  int64_t num_microbatches = 0;

  bool operator==(const BatchSplit&) const = default;
};
inline BatchSplit split_batch(const Config& config, int num_data_ranks) {
  BatchSplit split;
  split.sequences_per_rank = config.train.global_batch_size / num_data_ranks;
  split.micro_batch_size = config.train.micro_batch_size > 0 ? config.train.micro_batch_size : split.sequences_per_rank;
  split.num_microbatches = split.sequences_per_rank / split.micro_batch_size;
  return split;
}

}  // namespace trainer
