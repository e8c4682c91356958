/// What holds for every schedule, over all settings up to 8 ranks, 4 stages a rank and 24 micro-batches.

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/schedule_passes.h"
#include "tests/parallel/schedule_cases.h"

namespace parallel {
namespace {

using ::testing::IsEmpty;

constexpr int kMaxRanks = 8;
constexpr int kMaxVirtualStages = 4;
constexpr int kMaxMicrobatches = 24;

template <typename Visit>
void for_all_settings(const std::string& name, Visit visit) {
  for (int num_ranks = 1; num_ranks <= kMaxRanks; ++num_ranks) {
    for (int virtual_stages = 1; virtual_stages <= kMaxVirtualStages; ++virtual_stages) {
      for (int num_microbatches = 1; num_microbatches <= kMaxMicrobatches; ++num_microbatches) {
        visit(ScheduleSettings{name, num_ranks, num_microbatches, virtual_stages, 0});
      }
    }
  }
}

std::string text_of(const ScheduleSettings& s) {
  return fmt::format("{} P{} v{} m{} N{}", s.name, s.num_ranks, s.virtual_stages, s.num_microbatches,
                     s.microbatch_group);
}

void expect_no_deadlock(const Schedule& schedule, const std::string& what) {
  for (const Transport transport : kMessageTransports) {
    const Simulation simulation = simulate(schedule, {.transport = transport});
    EXPECT_THAT(simulation.stuck, IsEmpty())
        << what << ", transport " << static_cast<int>(transport) << ": " << stuck_text(schedule, simulation);
  }
}

/// The only settings that schedules refuse.
bool is_refused(const ScheduleSettings& s) {
  if (s.name == "gpipe" || s.name == "1f1b" || s.name == "zb_h1") return s.virtual_stages != 1;
  if (s.name == "zb_v") return s.virtual_stages != 2;
  return s.name == "dualpipe_v" && (s.virtual_stages != 2 || s.num_microbatches < 2 * s.num_ranks);
}

class EverySchedule : public ::testing::TestWithParam<std::string> {};

TEST_P(EverySchedule, IsAStepThatEndsUnderEveryTransport) {
  for_all_settings(GetParam(), [](const ScheduleSettings& settings) {
    ASSERT_EQ(schedule_problems(settings).empty(), !is_refused(settings)) << text_of(settings);
    if (is_refused(settings)) return;

    const Schedule passes = make_schedule(settings);
    const Schedule lowered = add_messages(passes);

    EXPECT_THAT(schedule_faults(passes), IsEmpty()) << text_of(settings);
    EXPECT_THAT(schedule_faults(lowered), IsEmpty()) << text_of(settings);
    expect_no_deadlock(lowered, text_of(settings));
  });
}

TEST_P(EverySchedule, RunsForwardsOnly) {
  for_all_settings(GetParam(), [](ScheduleSettings settings) {
    if (settings.virtual_stages != 2 || settings.num_microbatches % 3 != 1) return;
    settings.virtual_stages = 0;  // the usual number

    const Schedule passes = make_forward_schedule(settings);
    const Schedule lowered = add_messages(passes);

    EXPECT_THAT(schedule_faults(lowered), IsEmpty()) << text_of(settings);
    expect_no_deadlock(lowered, text_of(settings));
    EXPECT_THAT(simulate(passes, {}).peak_live, ::testing::Each(1));
  });
}

TEST_P(EverySchedule, TakesItsTextBack) {
  for_all_settings(GetParam(), [](const ScheduleSettings& settings) {
    if (is_refused(settings) || settings.num_microbatches % 5 != 1) return;
    const ZeroActions zero{ZeroActions::Gather::per_run, ZeroActions::Reduce::per_run};
    const Schedule schedule =
        add_step(add_messages(add_zero_actions(make_schedule(settings), zero)), SharedTable::first_and_last_stage);

    EXPECT_EQ(schedule_from_text(to_text(schedule), "text"), schedule) << text_of(settings);
  });
}

TEST_P(EverySchedule, IsAStepWithZeroActions) {
  using enum ZeroActions::Gather;
  for_all_settings(GetParam(), [](const ScheduleSettings& settings) {
    if (is_refused(settings) || settings.num_microbatches % 7 != 1) return;
    const Schedule passes = make_schedule(settings);
    for (const auto gather : {per_pass, per_run, per_step}) {
      for (const auto reduce :
           {ZeroActions::Reduce::per_step, ZeroActions::Reduce::per_pass, ZeroActions::Reduce::per_run}) {
        const Schedule lowered =
            add_step(add_messages(add_zero_actions(passes, {gather, reduce})), SharedTable::first_and_last_stage);
        EXPECT_THAT(schedule_faults(lowered), IsEmpty()) << text_of(settings);
        expect_no_deadlock(lowered, text_of(settings));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Names, EverySchedule, ::testing::ValuesIn(schedule_names()),
                         [](const auto& test) { return test.param; });

TEST(MicrobatchGroups, WorkWhereTheirLastOneFillsTheRanks) {
  for (int num_ranks = 1; num_ranks <= 6; ++num_ranks) {
    for (int m = num_ranks; m <= 16; ++m) {
      for (int group = num_ranks; group <= m; ++group) {
        if (m % group != 0 && m % group < num_ranks) continue;
        const ScheduleSettings settings{"interleaved", num_ranks, m, 3, group};
        ASSERT_THAT(schedule_problems(settings), IsEmpty()) << text_of(settings);
        expect_no_deadlock(add_messages(make_schedule(settings)), text_of(settings));
      }
    }
  }
}

/// How an obvious placement of messages fares: the study that shows that these transports can hang.
struct Naive {
  const char* name;
  int num_ranks, virtual_stages;
  std::vector<Transport> hangs;
};

TEST(NaiveMessages, HangAsTheStudySays) {
  using enum Transport;
  const std::vector<Naive> study = {
      {"gpipe", 4, 1, {}},
      {"1f1b", 4, 1, {blocking, queue_per_rank, queue_per_peer}},
      {"zb_h1", 4, 1, {blocking, queue_per_rank, queue_per_peer}},
      {"interleaved", 4, 2, {blocking, queue_per_rank, queue_per_peer}},
      {"interleaved_zb", 4, 2, {blocking, queue_per_rank, queue_per_peer}},
      {"interleaved", 2, 2, {blocking, queue_per_rank, queue_per_peer, queue_per_class}},
      {"bfs", 4, 2, {blocking, queue_per_rank}},
      {"zb_v", 4, 2, {blocking, queue_per_rank, queue_per_peer, queue_per_direction, queue_per_class}},
      {"dualpipe_v", 4, 2, {blocking, queue_per_rank, queue_per_peer, queue_per_direction, queue_per_class}},
  };
  for (const Naive& naive : study) {
    const Schedule schedule = with_naive_messages(make(naive.name, naive.num_ranks, naive.virtual_stages, 8));
    std::vector<Transport> hangs;
    for (const Transport transport : kMessageTransports) {
      if (!simulate(schedule, {.transport = transport}).stuck.empty()) hangs.push_back(transport);
    }
    EXPECT_EQ(hangs, naive.hangs) << naive.name << " P" << naive.num_ranks;
  }
}

}  // namespace
}  // namespace parallel
