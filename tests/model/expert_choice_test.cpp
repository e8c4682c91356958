#include "model/expert_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/tensors.h"

namespace tests {

using model::ChoicePiece;
using model::kept_within;
using model::sort_choices;
using testing::ElementsAre;

namespace {

constexpr int64_t kExperts = 4, kTopK = 2, kSeqLen = 12, kSequences = 3;

std::vector<int32_t> random_ids() {
  std::vector<int32_t> ids;
  for (const double x : random_values(kSequences * kSeqLen, 3)) {
    const int32_t first = std::abs(static_cast<int32_t>(x * 1000)) % 3;  // crowded at the first three
    ids.insert(ids.end(), {first, first + 1});
  }
  return ids;
}

/// The rows of all sequences that lie in positions [begin, end) of each, twice: zigzag half-chunks.
ChoicePiece piece_of(const std::vector<int32_t>& ids, const std::vector<std::pair<int64_t, int64_t>>& chunks) {
  ChoicePiece piece;
  for (int64_t sequence = 0; sequence < kSequences; ++sequence) {
    for (const auto& [begin, end] : chunks) {
      for (int64_t position = begin; position < end; ++position) {
        const auto first = ids.begin() + (sequence * kSeqLen + position) * kTopK;
        piece.ids.insert(piece.ids.end(), first, first + kTopK);
        piece.positions.push_back(static_cast<int32_t>(position));
      }
    }
  }
  piece.rows = {
      .first_row = 0, .rows_per_sequence = std::ssize(piece.positions) / kSequences, .num_sequences = kSequences};
  return piece;
}

}  // namespace

TEST(KeptWithin, TakesTheFirstOfEachSequence) {
  const ChoicePiece piece{.ids = {0, 1, 0, 2, 0, 1, 0, 1}, .positions = {0, 1, 0, 1}, .rows = {0, 2, 2}};

  EXPECT_EQ(kept_within(1, {piece}, 0, 3), (std::vector<bool>{true, true, false, true, true, true, false, false}));
}

TEST(KeptWithin, DoesNotSeeHowASequenceIsCut) {
  const std::vector<int32_t> ids = random_ids();
  const std::vector<ChoicePiece> halves = {piece_of(ids, {{0, 3}, {9, 12}}), piece_of(ids, {{3, 6}, {6, 9}})};
  const ChoicePiece whole = piece_of(ids, {{0, kSeqLen}});
  const std::vector<bool> expected = kept_within(4, {whole}, 0, kExperts);

  for (size_t own = 0; own < halves.size(); ++own) {
    const std::vector<bool> kept = kept_within(4, halves, own, kExperts);
    for (size_t slot = 0; slot < kept.size(); ++slot) {
      const int64_t row = static_cast<int64_t>(slot) / kTopK,
                    position = halves[own].positions[static_cast<size_t>(row)];
      const int64_t at = (halves[own].rows.sequence_of(row) * kSeqLen + position) * kTopK;
      EXPECT_EQ(kept[slot], expected[static_cast<size_t>(at) + slot % kTopK]);
    }
  }
  EXPECT_GT(std::count(expected.begin(), expected.end(), false), 0);
}

TEST(SortChoices, KeepsTheOrderOfTokensWithinAnExpert) {
  const std::vector<int32_t> ids = {2, 0, 0, 1, 2, 1};

  const model::SortedChoices sorted = sort_choices(ids, 2, {}, 4);

  EXPECT_THAT(sorted.counts, ElementsAre(2, 2, 2, 0));
  EXPECT_THAT(sorted.tokens, ElementsAre(0, 1, 1, 2, 0, 2));
  EXPECT_THAT(sorted.places, ElementsAre(4, 0, 1, 2, 5, 3));
}

TEST(SortChoices, LeavesDroppedOnesOut) {
  const std::vector<int32_t> ids = {2, 0, 0, 1};

  const model::SortedChoices sorted = sort_choices(ids, 2, {true, false, true, true}, 3);

  EXPECT_THAT(sorted.chosen, ElementsAre(2, 1, 1));
  EXPECT_THAT(sorted.counts, ElementsAre(1, 1, 1));
  EXPECT_THAT(sorted.tokens, ElementsAre(1, 1, 0));
  EXPECT_THAT(sorted.places, ElementsAre(2, -1, 0, 1));
}

TEST(SortChoices, ServesNoTokens) {
  const model::SortedChoices sorted = sort_choices({}, 2, {}, 3);

  EXPECT_THAT(sorted.counts, ElementsAre(0, 0, 0));
  EXPECT_TRUE(sorted.tokens.empty());
}

}  // namespace tests
