#include "model/expert_choice.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace model {

namespace {

/// A row of some piece, by its place in a sequence.
struct PlacedRow {
  int64_t sequence;
  int32_t position;
  size_t piece;
  int64_t row;
};

std::vector<PlacedRow> in_order(const std::vector<ChoicePiece>& pieces) {
  std::vector<PlacedRow> rows;
  for (size_t piece = 0; piece < pieces.size(); ++piece) {
    for (int64_t row = 0; row < std::ssize(pieces[piece].positions); ++row) {
      rows.push_back(
          {pieces[piece].rows.sequence_of(row), pieces[piece].positions[static_cast<size_t>(row)], piece, row});
    }
  }
  std::ranges::sort(rows, [](const PlacedRow& a, const PlacedRow& b) {
    return std::tie(a.sequence, a.position) < std::tie(b.sequence, b.position);
  });
  return rows;
}

}  // namespace

std::vector<bool> kept_within(int64_t capacity, const std::vector<ChoicePiece>& pieces, size_t own,
                              int64_t num_experts) {
  std::vector<bool> kept(pieces[own].ids.size());
  std::vector<int64_t> taken(static_cast<size_t>(num_experts));
  int64_t sequence = -1;
  for (const PlacedRow& placed : in_order(pieces)) {
    if (std::exchange(sequence, placed.sequence) != placed.sequence) std::ranges::fill(taken, 0);
    const ChoicePiece& piece = pieces[placed.piece];
    const size_t top_k = piece.ids.size() / piece.positions.size();
    for (size_t slot = static_cast<size_t>(placed.row) * top_k; slot < static_cast<size_t>(placed.row + 1) * top_k;
         ++slot) {
      const bool fits = taken[static_cast<size_t>(piece.ids[slot])]++ < capacity;
      if (placed.piece == own) kept[slot] = fits;
    }
  }
  return kept;
}

SortedChoices sort_choices(const std::vector<int32_t>& ids, int64_t top_k, const std::vector<bool>& kept,
                           int64_t num_experts) {
  SortedChoices sorted;
  sorted.chosen.assign(static_cast<size_t>(num_experts), 0);
  sorted.counts = sorted.chosen;
  for (size_t slot = 0; slot < ids.size(); ++slot) {
    ++sorted.chosen[static_cast<size_t>(ids[slot])];
    if (kept.empty() || kept[slot]) ++sorted.counts[static_cast<size_t>(ids[slot])];
  }
  std::vector<int64_t> next(static_cast<size_t>(num_experts), 0);
  std::partial_sum(sorted.counts.begin(), sorted.counts.end() - 1, next.begin() + 1);
  sorted.tokens.resize(static_cast<size_t>(std::accumulate(sorted.counts.begin(), sorted.counts.end(), int64_t{0})));
  sorted.places.assign(ids.size(), -1);
  for (size_t slot = 0; slot < ids.size(); ++slot) {
    if (!kept.empty() && !kept[slot]) continue;
    const int64_t row = next[static_cast<size_t>(ids[slot])]++;
    sorted.tokens[static_cast<size_t>(row)] = static_cast<int32_t>(slot / static_cast<size_t>(top_k));
    sorted.places[slot] = static_cast<int32_t>(row);
  }
  return sorted;
}

}  // namespace model
