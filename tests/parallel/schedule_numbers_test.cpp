/// Makespan, idle time and peaks with F = I = W = 1: a table that was computed apart from this code, and closed forms.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/schedule_generate.h"
#include "tests/parallel/schedule_cases.h"

namespace parallel {
namespace {

using ::testing::ElementsAreArray;

struct Row {
  const char* name;
  int num_ranks, virtual_stages, num_microbatches;
  double makespan, idle;
  std::vector<int> peaks;
};

std::vector<int> equal(size_t count, int peak) { return std::vector<int>(count, peak); }

void PrintTo(const Row& row, std::ostream* out) {
  *out << row.name << " P" << row.num_ranks << " v" << row.virtual_stages << " m" << row.num_microbatches;
}

class ScheduleNumbers : public ::testing::TestWithParam<Row> {};

TEST_P(ScheduleNumbers, AreThoseOfTheTable) {
  const Row& row = GetParam();

  const Simulation simulation = simulate(make(row.name, row.num_ranks, row.virtual_stages, row.num_microbatches), {});

  EXPECT_EQ(simulation.makespan, row.makespan);
  for (int rank = 0; rank < row.num_ranks; ++rank) EXPECT_EQ(simulation.idle(rank), row.idle) << "rank " << rank;
  EXPECT_THAT(simulation.peak_live, ElementsAreArray(row.peaks));
}

INSTANTIATE_TEST_SUITE_P(
    Facts, ScheduleNumbers,
    ::testing::Values(Row{"gpipe", 4, 1, 8, 33, 9, equal(4, 8)}, Row{"1f1b", 4, 1, 8, 33, 9, {4, 3, 2, 1}},
                      Row{"1f1b", 4, 1, 2, 15, 9, {2, 2, 2, 1}}, Row{"interleaved", 4, 2, 8, 57, 9, {11, 9, 7, 5}},
                      Row{"interleaved", 4, 4, 8, 105, 9, {19, 17, 15, 13}}, Row{"bfs", 4, 2, 8, 57, 9, equal(4, 16)},
                      Row{"zb_h1", 4, 1, 8, 27, 3, equal(4, 4)}, Row{"interleaved_zb", 4, 2, 8, 51, 3, equal(4, 8)},
                      Row{"zb_v", 4, 2, 8, 51, 3, equal(4, 8)}, Row{"dualpipe_v", 4, 2, 8, 54, 6, equal(4, 9)},
                      Row{"dualpipe_v", 4, 2, 10, 66, 6, equal(4, 9)},
                      Row{"1f1b", 8, 1, 16, 69, 21, {8, 7, 6, 5, 4, 3, 2, 1}},
                      Row{"interleaved", 8, 2, 16, 117, 21, {23, 21, 19, 17, 15, 13, 11, 9}},
                      Row{"zb_h1", 8, 1, 16, 55, 7, equal(8, 8)}, Row{"zb_v", 8, 2, 16, 103, 7, equal(8, 16)},
                      Row{"dualpipe_v", 8, 2, 16, 110, 14, equal(8, 17)}));

INSTANTIATE_TEST_SUITE_P(
    Tables, ScheduleNumbers,
    ::testing::Values(Row{"1f1b", 4, 1, 4, 21, 9, {4, 3, 2, 1}}, Row{"interleaved", 2, 2, 4, 27, 3, {5, 3}},
                      Row{"interleaved", 2, 2, 5, 33, 3, {6, 4}}, Row{"bfs", 2, 2, 4, 27, 3, {8, 8}},
                      Row{"zb_h1", 4, 1, 6, 21, 3, equal(4, 4)}, Row{"interleaved_zb", 2, 2, 4, 25, 1, {4, 4}},
                      Row{"zb_v", 2, 2, 4, 25, 1, {4, 4}}, Row{"dualpipe_v", 2, 2, 4, 26, 2, {5, 5}}));

TEST(ScheduleCosts, AttentionHeavyLayersShrinkTheGainOfZeroBubbles) {
  // (F, I, W) = (1, 1.5, 0.7) for the layers of a rank, which a V cuts in two: idle 9.6, 5.4 and 2.4.
  const auto idle = [](const Schedule& schedule, double part) {
    const std::vector<double> forward(schedule.rank_of_stage.size(), part);
    const std::vector<double> input(schedule.rank_of_stage.size(), 1.5 * part);
    const std::vector<double> weight(schedule.rank_of_stage.size(), 0.7 * part);
    return simulate(schedule, {.forward = forward, .backward_input = input, .backward_weight = weight}).idle(0);
  };

  EXPECT_NEAR(idle(make("1f1b", 4, 1, 8), 1), 9.6, 1e-9);
  EXPECT_NEAR(idle(make("zb_h1", 4, 1, 8), 1), 5.4, 1e-9);
  EXPECT_NEAR(idle(make("zb_v", 4, 2, 8), 0.5), 2.4, 0.05);
}

TEST(ScheduleCosts, NameBothBubbles) {
  const int num_ranks = 4;
  const int num_microbatches = 8;
  const Simulation simulation = simulate(make("1f1b", num_ranks, 1, num_microbatches), {});

  EXPECT_DOUBLE_EQ(simulation.idle_over_ideal(), 3.0 / 8);
  EXPECT_DOUBLE_EQ(simulation.idle_over_total(), 3.0 / 11);
}

/// What a schedule costs in closed form, and from how many micro-batches on.
struct ClosedForm {
  int idle;
  int peak;
  int least_microbatches;
};

ClosedForm closed_form(const std::string& name, const ScheduleSettings& s, int rank) {
  const int gaps = s.num_ranks - 1;
  const int m = s.num_microbatches;
  const int all = m * s.virtual_stages;
  const int earlier_chunks = (s.virtual_stages - 1) * s.microbatch_group;
  if (name == "gpipe") return {3 * gaps, m, 1};
  if (name == "1f1b") return {3 * gaps, std::min(s.num_ranks - rank, m), 1};
  if (name == "interleaved") {
    return {3 * gaps, std::min(earlier_chunks + 2 * (gaps - rank) + 1, all), s.num_ranks};
  }
  if (name == "bfs") return {3 * gaps, all, s.num_ranks};
  if (name == "zb_h1") return {gaps + std::max(s.num_ranks - m, 0), std::min(s.num_ranks, m), 1};
  if (name == "interleaved_zb") return {gaps, std::min(earlier_chunks + s.num_ranks, all), s.num_ranks};
  if (name == "zb_v") return {gaps, 2 * s.num_ranks, 2 * s.num_ranks - 1};
  return {2 * gaps, 2 * s.num_ranks + 1, 2 * s.num_ranks};  // dualpipe_v
}

void expect_closed_form(const ScheduleSettings& settings) {
  const Simulation simulation = simulate(make_schedule(settings), {});
  for (int rank = 0; rank < settings.num_ranks; ++rank) {
    const ClosedForm form = closed_form(settings.name, settings, rank);
    if (settings.num_microbatches < form.least_microbatches) continue;
    EXPECT_EQ(simulation.idle(rank), form.idle)
        << settings.name << " P" << settings.num_ranks << " v" << settings.virtual_stages << " m"
        << settings.num_microbatches << " rank " << rank;
    EXPECT_EQ(simulation.peak_live[static_cast<size_t>(rank)], form.peak)
        << settings.name << " P" << settings.num_ranks << " v" << settings.virtual_stages << " m"
        << settings.num_microbatches << " rank " << rank;
  }
}

TEST(ScheduleCosts, FollowTheClosedForms) {
  for (const std::string& name : schedule_names()) {
    const bool is_grouped = name.starts_with("interleaved");
    for (int num_ranks = 1; num_ranks <= 8; ++num_ranks) {
      for (int virtual_stages = 1; virtual_stages <= 4; ++virtual_stages) {
        for (int num_microbatches = 1; num_microbatches <= 24; ++num_microbatches) {
          const int group = is_grouped ? default_microbatch_group(num_ranks, num_microbatches) : 0;
          const ScheduleSettings settings{name, num_ranks, num_microbatches, virtual_stages, group};
          if (schedule_problems(settings).empty()) expect_closed_form(settings);
        }
      }
    }
  }
}

}  // namespace
}  // namespace parallel
