/// Which tokens each sequence-parallel rank holds, and that this gives all the same work.

#include "parallel/sequence_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/tensors.h"

namespace tests {

using parallel::held_positions;
using parallel::held_ranges;
using parallel::TokenRange;

namespace {

/// (query, key) pairs that a causal mask lets the queries of one rank see among the keys of another.
int64_t visible_pairs(int64_t seq_len, int query_rank, int key_rank, int size) {
  const std::vector<int64_t> keys = held_positions(seq_len, {key_rank, size});
  int64_t pairs = 0;
  for (const int64_t query : held_positions(seq_len, {query_rank, size})) {
    pairs += std::upper_bound(keys.begin(), keys.end(), query) - keys.begin();
  }
  return pairs;
}

}  // namespace

TEST(HeldRanges, AreAnEarlyAndALateHalfChunk) {
  EXPECT_EQ(held_ranges(16, {.rank = 0, .size = 4}), (std::vector<TokenRange>{{0, 2}, {14, 16}}));
  EXPECT_EQ(held_ranges(16, {.rank = 2, .size = 4}), (std::vector<TokenRange>{{4, 6}, {10, 12}}));
  EXPECT_EQ(held_ranges(16, {.rank = 3, .size = 4}), (std::vector<TokenRange>{{6, 8}, {8, 10}}));
}

TEST(HeldRanges, AreTheWholeSequenceOfOneRank) { EXPECT_EQ(held_ranges(13, {}), (std::vector<TokenRange>{{0, 13}})); }

TEST(HeldRanges, RefuseWhatTheyCannotCut) { EXPECT_THROW(held_ranges(12, {.rank = 0, .size = 4}), std::exception); }

TEST(HeldPositions, AreEachTokenOnOneRankAscending) {
  for (const int size : {1, 2, 3, 8}) {
    std::vector<int64_t> all;
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<int64_t> held = held_positions(48, {rank, size});
      EXPECT_TRUE(std::is_sorted(held.begin(), held.end()));
      EXPECT_EQ(std::ssize(held), 48 / size);
      all.insert(all.end(), held.begin(), held.end());
    }
    std::sort(all.begin(), all.end());
    std::vector<int64_t> expected(48);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected) << size;
  }
}

TEST(HeldPositions, GiveEveryRankTheSameWorkInEveryStepOfARing) {
  constexpr int64_t kSeqLen = 2048;
  for (const int size : {2, 4, 8}) {
    for (int step = 0; step < size; ++step) {
      std::vector<int64_t> work;
      for (int rank = 0; rank < size; ++rank) {
        work.push_back(visible_pairs(kSeqLen, rank, (rank - step + size) % size, size));
      }
      const auto [least, most] = std::ranges::minmax(work);
      EXPECT_LE(static_cast<double>(most - least), 0.01 * static_cast<double>(most)) << size << " ranks, step " << step;
    }
  }
}

TEST(OrderOfTokens, GoesFromRanksToSequencesAndBack) {
  const tensor::Backend backend = tensor::make_cpu_backend({.num_threads = 1});
  const Values values = {0, 3, 4, 7, 1, 2, 5, 6};  // two sequences of four tokens on two ranks
  const tensor::Tensor by_rank = make_tensor(*backend.device, {8, 1}, tensor::Dtype::fp32, values);

  const tensor::Tensor in_sequence = parallel::by_rank_to_in_sequence(by_rank, 2, 2);

  EXPECT_EQ(values_of(in_sequence), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(values_of(parallel::in_sequence_to_by_rank(in_sequence, 2, 2)), values);
}

}  // namespace tests
