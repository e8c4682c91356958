#include "parallel/schedule_picture.h"

#include <fmt/core.h>

#include <algorithm>

#include "parallel/schedule_walk.h"
#include "tensor/error.h"

namespace parallel {
namespace {

/// By stage: which of its rank's stages it is.
std::vector<int> chunks_of(const Schedule& schedule) {
  std::vector<int> num_stages(schedule.ranks.size(), 0);
  std::vector<int> chunks;
  for (const int rank : schedule.rank_of_stage) chunks.push_back(num_stages[static_cast<size_t>(rank)]++);
  return chunks;
}

void add_cell(Picture& picture, size_t rank, const PictureCell& cell) {
  picture.ranks[rank].push_back(cell);
  picture.has_kind.at(static_cast<size_t>(cell.pass.kind)) = true;
  picture.has_pairs = picture.has_pairs || cell.pass.overlaps_next;
  picture.most_chunks = std::max(picture.most_chunks, cell.chunk + 1);
}

/// Of the passes that are worth a label: beside layers, those of a stage that has none take no time to speak of.
double shortest_cell(const Picture& picture) {
  constexpr double kLeastShare = 0.1;  // of the longest
  double longest = 0;
  for (const auto& cells : picture.ranks) {
    for (const PictureCell& cell : cells) longest = std::max(longest, cell.end - cell.start);
  }
  double shortest = longest;
  for (const auto& cells : picture.ranks) {
    for (const PictureCell& cell : cells) {
      const double duration = cell.end - cell.start;
      if (duration >= kLeastShare * longest) shortest = std::min(shortest, duration);
    }
  }
  return shortest;
}

}  // namespace

Picture picture_of(const Schedule& schedule, const Simulation& simulation) {
  CHECK(simulation.stuck.empty(), "a drawing of a deadlock");
  Picture picture;
  picture.ranks.resize(schedule.ranks.size());
  const std::vector<int> chunks = chunks_of(schedule);
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    const std::vector<Action>& list = schedule.ranks[rank];
    for (size_t i = 0; i < list.size();) {
      const size_t length = block_length(list, i);
      const TimeSpan& span = simulation.spans[rank][i];
      const double part = (span.end - span.start) / static_cast<double>(length);
      for (size_t j = 0; j < length; ++j, ++i) {
        if (!is_pass(list[i].kind)) continue;
        const double start = span.start + part * static_cast<double>(j);
        add_cell(picture, rank, {list[i], chunks[static_cast<size_t>(list[i].stage)], start, start + part});
      }
    }
  }
  picture.shortest_cell = shortest_cell(picture);
  return picture;
}

std::string idle_text(const Simulation& simulation) {
  return fmt::format("Makespan {:.6g}, idle / ideal {:.1f} %, idle / total {:.1f} %", simulation.makespan,
                     100 * simulation.idle_over_ideal(), 100 * simulation.idle_over_total());
}

char letter_of(ActionKind pass) {
  constexpr std::array<char, 4> kLetters = {'F', 'B', 'I', 'W'};
  return kLetters.at(static_cast<size_t>(pass));
}

const char* meaning_of(ActionKind pass) {
  constexpr std::array<const char*, 4> kMeanings = {"forward", "backward", "backward of inputs", "backward of weights"};
  return kMeanings.at(static_cast<size_t>(pass));
}

}  // namespace parallel
