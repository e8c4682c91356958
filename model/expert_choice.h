#pragma once
/// What follows from the experts that tokens chose, on the host: who is dropped, and in what order rows are sent.

#include <cstdint>
#include <vector>

#include "tensor/ops.h"

namespace model {

/// The choices of the rows of one rank, for capacity's sake.
struct ChoicePiece {
  std::vector<int32_t> ids;        ///< [rows, top_k]
  std::vector<int32_t> positions;  ///< [rows], in the sequence
  tensor::SequenceRows rows;
};

/// Which choices of pieces[own] are kept where an expert takes the first `capacity` of each sequence, in order of
/// position and then of preference: no matter how the sequence is cut into pieces. [rows, top_k]
std::vector<bool> kept_within(int64_t capacity, const std::vector<ChoicePiece>& pieces, size_t own,
                              int64_t num_experts);

/// Rows in the order of their experts, of one expert in the order of tokens.
struct SortedChoices {
  std::vector<int64_t> chosen;  ///< [num_experts]: choices, dropped ones too
  std::vector<int64_t> counts;  ///< [num_experts]: rows, without dropped ones
  std::vector<int32_t> tokens;  ///< [rows]: the token that each row is
  std::vector<int32_t> places;  ///< [tokens, top_k]: the row of each choice; -1: dropped
};
/// `kept` empty: all are.
SortedChoices sort_choices(const std::vector<int32_t>& ids, int64_t top_k, const std::vector<bool>& kept,
                           int64_t num_experts);

}  // namespace model
