#include "parallel/sequence_parallel.h"

#include "tensor/device.h"

namespace parallel {

using tensor::Tensor;

std::string to_string(SpMethod method) {
  switch (method) {
    case SpMethod::ring:
      return "ring";
    case SpMethod::ulysses:
      return "ulysses";
    case SpMethod::all_gather:
      return "all_gather";
  }
  return "unknown";
}

std::vector<TokenRange> held_ranges(int64_t seq_len, const SequencePart& part) {
  CHECK(0 <= part.rank && part.rank < part.size, "rank {} of {}", part.rank, part.size);
  if (part.size == 1) return {{0, seq_len}};
  CHECK(seq_len % (2 * part.size) == 0, "{} tokens fall into 2 * {} equal parts", seq_len, part.size);
  const int64_t half = seq_len / (2 * part.size), late = 2 * part.size - 1 - part.rank;
  return {{part.rank * half, (part.rank + 1) * half}, {late * half, (late + 1) * half}};
}

std::vector<int64_t> held_positions(int64_t seq_len, const SequencePart& part) {
  std::vector<int64_t> positions;
  for (const TokenRange& range : held_ranges(seq_len, part)) {
    for (int64_t position = range.begin; position < range.end; ++position) positions.push_back(position);
  }
  return positions;
}

namespace {

/// Calls move(row by rank, row in sequence, count) for every run of rows that lie together in both orders.
template <class Move>
void for_each_run(int64_t num_tokens, int64_t num_sequences, int size, const Move& move) {
  if (num_sequences == 0) return;
  CHECK(num_tokens % num_sequences == 0, "{} tokens are {} sequences", num_tokens, num_sequences);
  const int64_t seq_len = num_tokens / num_sequences;
  int64_t by_rank = 0;
  for (int rank = 0; rank < size; ++rank) {
    for (int64_t sequence = 0; sequence < num_sequences; ++sequence) {
      for (const TokenRange& range : held_ranges(seq_len, {rank, size})) {
        move(by_rank, sequence * seq_len + range.begin, range.size());
        by_rank += range.size();
      }
    }
  }
}

Tensor like(const Tensor& x) { return x.device().allocate(x.shape(), x.dtype(), tensor::MemoryCategory::activations); }

void copy_rows(const Tensor& from, int64_t from_row, Tensor& to, int64_t to_row, int64_t count) {
  Tensor rows = to.rows(to_row, to_row + count);
  from.device().copy(from.rows(from_row, from_row + count), rows);
}

}  // namespace

Tensor by_rank_to_in_sequence(const Tensor& by_rank, int64_t num_sequences, int size) {
  Tensor in_sequence = like(by_rank);
  for_each_run(by_rank.dim(0), num_sequences, size, [&](int64_t rank_row, int64_t sequence_row, int64_t count) {
    copy_rows(by_rank, rank_row, in_sequence, sequence_row, count);
  });
  return in_sequence;
}

Tensor in_sequence_to_by_rank(const Tensor& in_sequence, int64_t num_sequences, int size) {
  Tensor by_rank = like(in_sequence);
  for_each_run(in_sequence.dim(0), num_sequences, size, [&](int64_t rank_row, int64_t sequence_row, int64_t count) {
    copy_rows(in_sequence, sequence_row, by_rank, rank_row, count);
  });
  return by_rank;
}

}  // namespace parallel
