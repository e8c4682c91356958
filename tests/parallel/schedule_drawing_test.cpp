#include "parallel/schedule_drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "parallel/schedule_passes.h"
#include "tests/parallel/schedule_cases.h"

namespace parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kColumns = 160;

std::string draw(const Schedule& schedule, int columns) {
  return draw_timeline(schedule, simulate(schedule, {}), columns);
}

size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST(Timeline, DrawsOneLinePerRank) {
  EXPECT_EQ(draw(make("1f1b", 2, 1, 2), 60),
            "rank 0  F0--F1--        B0------    B1------\n"
            "rank 1      F0--B0------F1--B1------\n"
            "\n"
            "F forward, B backward, each with its micro-batch; blank: idle.\n"
            "Makespan 9, idle / ideal 50.0 %, idle / total 33.3 %.\n"
            "rank  stages  busy  idle  peak live micro-batches\n"
            "0     0          6     3                        2\n"
            "1     1          6     3                        1\n");
}

TEST(Timeline, TellsPassesApartWithoutColour) {
  EXPECT_THAT(draw(make("zb_v", 2, 2, 2), kColumns),
              AllOf(HasSubstr("F0--"), HasSubstr("f0--"), HasSubstr("i0--"), HasSubstr("W1--"),
                    HasSubstr("I backward of inputs, W backward of weights"), HasSubstr("small letters: its second")));
  EXPECT_THAT(draw(make("interleaved", 2, 3, 2), kColumns),
              AllOf(HasSubstr("F21"), HasSubstr("The digit behind the letter")));
  EXPECT_THAT(draw(make("dualpipe_v", 2, 2, 4), kColumns),
              AllOf(HasSubstr("F3---&b1"), HasSubstr("F0&B1: both at once")));
}

TEST(Timeline, TakesNoRoomForStagesWithoutLayers) {
  SimulationOptions costs;
  costs.forward = costs.backward_input = costs.backward_weight = {0.001, 1, 1, 1};
  const Schedule schedule = make("1f1b", 4, 1, 4);

  const std::string text = draw_timeline(schedule, simulate(schedule, costs), kColumns);

  EXPECT_THAT(text, testing::Not(HasSubstr("time 0 to "))) << "one line a rank is enough";
  EXPECT_THAT(text, HasSubstr("F3"));
}

TEST(Timeline, FitsATerminalWithEightRanksAndSixteenMicrobatches) {
  for (const std::string& name : schedule_names()) {
    const std::string text = draw(make(name, 8, 0, 16), kColumns);
    EXPECT_LE(longest_line(text), static_cast<size_t>(kColumns)) << name;
    EXPECT_THAT(text, HasSubstr("rank 7 ")) << name;
  }
  EXPECT_THAT(draw(make("1f1b", 8, 0, 16), kColumns), HasSubstr("Ff"));
}

TEST(Timeline, BreaksWhatIsTooLong) {
  const std::string text = draw(make("1f1b", 2, 1, 9), 40);

  EXPECT_THAT(text, AllOf(StartsWith("time 0 to 15\n"), HasSubstr("\n\ntime 15 to 30\n"))) << "equal parts";
  EXPECT_LE(longest_line(text.substr(0, text.find("F forward"))), 40U);
}

TEST(Timeline, SurvivesExtremeTimes) {
  const Schedule schedule = make("1f1b", 2, 1, 4);
  const SimulationOptions uneven{.forward = {1e-9, 0}, .backward_input = {1e3, 0}, .backward_weight = {0, 0}};
  const SimulationOptions nothing{.forward = {0, 0}, .backward_input = {0, 0}, .backward_weight = {0, 0}};

  EXPECT_THAT(draw_timeline(schedule, simulate(schedule, uneven), kColumns), HasSubstr("Makespan 4000"));
  EXPECT_THAT(draw_timeline(schedule, simulate(schedule, nothing), kColumns), HasSubstr("Makespan 0"));
  EXPECT_THAT(draw_svg(schedule, simulate(schedule, nothing)), HasSubstr("</svg>"));
}

TEST(Timeline, LeavesMessagesOut) {
  const Schedule passes = make("zb_h1", 2, 1, 4);

  EXPECT_EQ(draw(add_messages(passes), kColumns), draw(passes, kColumns));
}

TEST(Svg, HasABarForEveryPass) {
  const Schedule schedule = make("dualpipe_v", 2, 2, 4);
  const std::string svg = draw_svg(schedule, simulate(schedule, {}));
  size_t num_passes = 0;
  for (const auto& list : schedule.ranks) num_passes += list.size();

  size_t num_titles = 0;
  for (size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) ++num_titles;

  EXPECT_EQ(num_titles, num_passes);
  EXPECT_THAT(svg, AllOf(StartsWith("<svg xmlns="), HasSubstr("<title>0F0 from 0 to 1</title>"), HasSubstr("rank 1"),
                         HasSubstr("Makespan 26"), HasSubstr("</svg>")));
}

}  // namespace
}  // namespace parallel
