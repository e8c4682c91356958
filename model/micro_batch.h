#pragma once
/// The tokens of one micro-batch on the device, with what travels along: positions, visibility, targets.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel/sequence_parallel.h"
#include "tensor/ops.h"

namespace model {

/// Host side: whole sequences of equal length, one after another.
struct HostBatch {
  int64_t num_sequences = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;         ///< the next token; negative: not predicted
  std::vector<int32_t> positions;       ///< in the sequence
  std::vector<int32_t> document_start;  ///< position of the first token of the own document
  std::vector<int64_t> token_index;     ///< place in the step's global batch: dropout is keyed by it
};

/// Of every sequence, the tokens that this rank holds (parallel/sequence_parallel.h).
struct MicroBatch {
  int64_t num_sequences = 0;
  int64_t step = 0;
  double grad_scale = 1;       ///< 1 / (valid targets of the whole step): the loss is a sum of token losses over that
  int64_t step_sequences = 1;  ///< of the whole step: what losses of routers are means over
  tensor::Tensor tokens, targets, positions, first_visible;  ///< int32 [tokens]
  tensor::Tensor token_index;                                ///< int64 [tokens]

  /// What attention knows of all tokens of the sequences; absent where this rank holds them all.
  struct Whole {
    tensor::Tensor positions, first_visible;  ///< int32 [tokens of all ranks], in sequence
    tensor::Tensor positions_by_rank;         ///< int32 [ranks, tokens]
  };
  Whole whole;

  int64_t num_tokens() const { return tokens.dim(0); }
  tensor::Tensor positions_of_rank(int rank) const {
    return whole.positions_by_rank.rows(rank, rank + 1).reshaped({num_tokens()});
  }
  /// This rank's queries over its own keys, or those at key_positions.
  tensor::AttentionMask mask() const { return mask(positions); }
  tensor::AttentionMask mask(const tensor::Tensor& key_positions) const {
    // An empty batch is one empty sequence: the mask divides rows by sequences.
    return {std::max<int64_t>(1, num_sequences), positions, first_visible, key_positions};
  }
};

/// Position of the first token that a query at `position` sees. sliding_window 0: no window.
int32_t first_visible(int32_t position, int32_t document_start, int64_t sliding_window);

/// The tokens of `part`.
MicroBatch to_device(const HostBatch& batch, int64_t sliding_window, const parallel::SequencePart& part,
                     tensor::Device& device);

}  // namespace model
