#pragma once
/// Which tokens of a sequence each sequence-parallel rank holds: a pure function that data, masks and attention share.
///
/// A sequence is cut into 2 * size half-chunks, and rank r holds half-chunks r and 2 * size - 1 - r (zigzag): under a
/// causal mask an early and a late part together see as many keys on every rank, at every step of a ring.
///   size 4     rank 0: 0 . . . . . . 7    rank 1: . 1 . . . . 6 .    rank 2: . . 2 . . 5 . .    rank 3: . . . 3 4 . .
///   .
/// Tokens lie in one of two orders
///   by rank       the tokens of rank 0, then of rank 1, ...; of each, sequence after sequence, in ascending position
///   in sequence   sequence after sequence, in ascending position

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/config.h"
#include "tensor/tensor.h"

namespace parallel {

std::string to_string(SpMethod method);

/// One rank of those that share every sequence.
struct SequencePart {
  int rank = 0;
  int size = 1;
};

/// Positions [begin, end) of a sequence.
struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const TokenRange&) const = default;
};

/// The positions that a rank holds, ascending: two half-chunks, or the whole sequence in a group of one. 2 * size
/// divides seq_len, unless size is 1.
std::vector<TokenRange> held_ranges(int64_t seq_len, const SequencePart& part);
std::vector<int64_t> held_positions(int64_t seq_len, const SequencePart& part);

/// Rows of tokens [tokens of all ranks, ...], from one order to the other: a copy.
tensor::Tensor by_rank_to_in_sequence(const tensor::Tensor& by_rank, int64_t num_sequences, int size);
tensor::Tensor in_sequence_to_by_rank(const tensor::Tensor& in_sequence, int64_t num_sequences, int size);

}  // namespace parallel
