#include "parallel/schedule_simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parallel/schedule_cases.h"

namespace parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Schedule from(const std::string& text) { return schedule_from_text(text, "text"); }

std::vector<std::string> critical_path(const Schedule& schedule, const Simulation& simulation) {
  std::vector<std::string> path;
  for (const ActionPlace& place : simulation.critical_path) {
    path.push_back(to_text(schedule.ranks[static_cast<size_t>(place.rank)][place.index]));
  }
  return path;
}

TEST(Simulator, AddsPassesAndLinks) {
  const Schedule schedule = make("1f1b", 2, 1, 1);
  const SimulationOptions options{
      .forward = {1, 2}, .backward_input = {4, 8}, .backward_weight = {16, 32}, .link_time = 0.5};

  const Simulation simulation = simulate(schedule, options);

  EXPECT_EQ(simulation.makespan, 1 + 0.5 + 2 + (8 + 32) + 0.5 + (4 + 16));
  EXPECT_THAT(simulation.busy, ElementsAre(21, 42));
  EXPECT_EQ(simulation.idle(0), 43);
  EXPECT_EQ(simulation.spans[1][1].start, 3.5);
  EXPECT_EQ(simulation.spans[1][1].end, 43.5);
  EXPECT_THAT(critical_path(schedule, simulation), ElementsAre("0F0", "1F0", "1B0", "0B0"));
}

TEST(Simulator, SendsInputGradientsBeforeWeights) {
  const Schedule schedule = from("0F0 0I0 0W0\n1F0 1I0 1W0\n");
  const SimulationOptions options{.forward = {1, 1}, .backward_input = {2, 2}, .backward_weight = {10, 3}};

  const Simulation simulation = simulate(schedule, options);

  EXPECT_EQ(simulation.makespan, 1 + 1 + 2 + 2 + 10);
  EXPECT_THAT(critical_path(schedule, simulation), ElementsAre("0F0", "1F0", "1I0", "0I0", "0W0"));
}

TEST(Simulator, FollowsTheBusiestRank) {
  const Schedule schedule = make("gpipe", 2, 1, 3);
  const SimulationOptions options{.forward = {1, 5}, .backward_input = {1, 1}, .backward_weight = {0.5, 1}};

  const Simulation simulation = simulate(schedule, options);

  EXPECT_EQ(simulation.makespan, 1 + 15 + 6 + 1.5);
  EXPECT_THAT(critical_path(schedule, simulation), ElementsAre("0F0", "1F0", "1F1", "1F2", "1B0", "1B1", "1B2", "0B2"));
}

TEST(Simulator, RunsAPairAsOneBlock) {
  const Schedule schedule = from("0F0 (0F1+0B0) 0B1\n");

  const Simulation simulation = simulate(schedule, {});

  EXPECT_EQ(simulation.makespan, 6);
  EXPECT_EQ(simulation.spans[0][1].end, 4);
  EXPECT_EQ(simulation.spans[0][2].start, 1);
  EXPECT_THAT(simulation.peak_live, ElementsAre(2)) << "the forward begins before the backward has ended";
}

TEST(Simulator, KeepsAMicrobatchUntilItsWeightsAreDone) {
  EXPECT_THAT(peak_live_microbatches(from("0F0 0I0 0F1 0W0 0I1 0W1\n")), ElementsAre(2));
  EXPECT_THAT(peak_live_microbatches(from("0F0 0I0 0W0 0F1 0I1 0W1\n")), ElementsAre(1));
}

TEST(Simulator, TakesMessagesInTurn) {
  // The second message leaves at 2, but the link is busy until 3.
  const Schedule schedule = from("0F0 0SEND_F0 0F1 0SEND_F1\n1RECV_F0 1RECV_F1 1F0 1F1\n");
  const auto makespan = [&](Transport transport) {
    return simulate(schedule, {.link_time = 2, .transport = transport}).makespan;
  };

  EXPECT_EQ(makespan(Transport::ideal), 5);
  EXPECT_EQ(makespan(Transport::queue_per_rank), 6);
  EXPECT_EQ(makespan(Transport::queue_per_class), 6);
  EXPECT_EQ(makespan(Transport::blocking), 8);
}

TEST(Simulator, FollowsTheCriticalPathThroughMessages) {
  const Schedule schedule = from("0F0 0SEND_F0\n1RECV_F0 1F0\n");

  for (const Transport transport : kMessageTransports) {
    const Simulation simulation = simulate(schedule, {.link_time = 2, .transport = transport});
    EXPECT_EQ(simulation.makespan, 4);
    EXPECT_EQ(critical_path(schedule, simulation).front(), "0F0");
    EXPECT_EQ(critical_path(schedule, simulation).back(), "1F0");
  }
}

TEST(Simulator, SaysWhereEveryRankStands) {
  const Schedule schedule = from("0F0 0SEND_F0 0F1 0SEND_F1\n1RECV_F1 1RECV_F0 1F0 1F1\n");

  const Simulation blocked = simulate(schedule, {.transport = Transport::blocking});
  EXPECT_EQ(stuck_text(schedule, blocked), "rank 0 at 0SEND_F0, rank 1 at 1RECV_F1");

  const Simulation queued = simulate(schedule, {.transport = Transport::queue_per_peer});
  EXPECT_EQ(stuck_text(schedule, queued), "rank 1 at 1F0") << "rank 0 goes on";
  EXPECT_THAT(simulate(schedule, {}).stuck, IsEmpty());
}

TEST(Simulator, NoticesASendThatNobodyReceives) {
  const Schedule schedule = from("0F0 0SEND_F0 0F1 0SEND_F1\n1RECV_F0 1F0\n");

  for (const Transport transport : kMessageTransports) {
    EXPECT_EQ(stuck_text(schedule, simulate(schedule, {.transport = transport})), "rank 0 at 0SEND_F1");
  }
}

TEST(Simulator, CountsStagesThatTakeNoTime) {
  const Schedule schedule = make("1f1b", 2, 1, 2);
  const SimulationOptions options{.forward = {1, 0}, .backward_input = {1, 0}, .backward_weight = {1, 0}};

  const Simulation simulation = simulate(schedule, options);

  EXPECT_EQ(simulation.makespan, 6);
  EXPECT_EQ(simulation.idle(1), 6);
  EXPECT_DOUBLE_EQ(simulation.idle_over_ideal(), 1);
}

}  // namespace
}  // namespace parallel
