#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tests/parallel/schedule_cases.h"

namespace parallel {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string problem(const ScheduleSettings& settings) {
  const std::vector<LayoutProblem> problems = schedule_problems(settings);
  return problems.size() == 1 ? problems[0].key + ": " + problems[0].text : "";
}

TEST(ScheduleProblems, ListTheNames) {
  EXPECT_THAT(problem({"zbh1", 4, 8, 0, 0}),
              AllOf(HasSubstr("parallel.schedule = \"zbh1\" is no schedule"),
                    HasSubstr("gpipe, 1f1b, interleaved, bfs, zb_h1, interleaved_zb, zb_v, dualpipe_v, or file:PATH")));
}

TEST(ScheduleProblems, RefuseStagesThatAnOrderIsNotMadeFor) {
  EXPECT_THAT(problem({"1f1b", 4, 8, 2, 0}),
              AllOf(HasSubstr("parallel.virtual_stages = 2 is too many for parallel.schedule = 1f1b"),
                    HasSubstr("Fix: set parallel.virtual_stages = 1, or parallel.schedule to interleaved")));
  EXPECT_THAT(problem({"zb_v", 4, 8, 3, 0}), HasSubstr("Fix: set parallel.virtual_stages = 2"));
  EXPECT_THAT(problem({"zb_v", 4, 8, 1, 0}), HasSubstr("Fix: set parallel.virtual_stages = 2"));
}

TEST(ScheduleProblems, RefuseTooFewMicrobatchesForPairs) {
  EXPECT_THAT(problem({"dualpipe_v", 4, 6, 0, 0}),
              AllOf(HasSubstr("2 * 4 = 8; this step has 6"), HasSubstr("parallel.pp of 3 or fewer"),
                    HasSubstr("parallel.schedule = zb_v")));
  EXPECT_THAT(problem({"dualpipe_v", 4, 3, 0, 0}), HasSubstr("per data-parallel rank, parallel.pp = 1, or parallel.s"));
  EXPECT_THAT(problem({"dualpipe_v", 4, 1, 0, 0}), testing::Not(HasSubstr("parallel.pp")));
  EXPECT_THAT(schedule_problems({"dualpipe_v", 4, 8, 0, 0}), IsEmpty());
}

TEST(ScheduleProblems, RefuseGroupsThatHang) {
  EXPECT_THAT(problem({"interleaved", 4, 8, 2, 1}),
              AllOf(HasSubstr("parallel.microbatch_group = 1 lets 4 pipeline ranks wait for each other"),
                    HasSubstr("Fix: use 4 or 8.")));
  EXPECT_THAT(schedule_problems({"interleaved", 4, 8, 2, 4}), IsEmpty());
  EXPECT_THAT(schedule_problems({"interleaved", 4, 8, 2, 100}), IsEmpty()) << "one group";
}

TEST(ScheduleProblems, RefuseAGroupThatNobodyReads) {
  EXPECT_THAT(problem({"1f1b", 4, 8, 1, 4}), HasSubstr("parallel.microbatch_group = 4 has no meaning"));
}

TEST(ScheduleProblems, RefuseNumbersOutOfRangeAllAtOnce) {
  const std::vector<LayoutProblem> problems = schedule_problems({"1f1b", 0, 0, -1, -1});

  EXPECT_EQ(problems.size(), 4U);
  EXPECT_THAT(problems, Contains(testing::Field(&LayoutProblem::key, "parallel.pp")));
  EXPECT_THAT(problem({"interleaved", 1000, 1000, 1000, 0}),
              HasSubstr("1000000 stages * 1000 micro-batches = 1000000000 forwards per step; the most is 4194304."));
  EXPECT_THAT(problem({"1f1b", 1, 2'000'000'000, 0, 0}), HasSubstr("2000000000 is not between 1 and 1048576"));
}

TEST(ScheduleProblems, EndTheProgramWithALayoutError) {
  EXPECT_THROW(make_schedule({"dualpipe_v", 4, 6, 0, 0}), tensor::LayoutError);
  EXPECT_THROW(make_forward_schedule({"zb_v", 4, 6, 1, 0}), tensor::LayoutError);
}

TEST(ForwardSchedule, TakesStepsTooShortForTraining) {
  const Schedule schedule = make_forward_schedule({"dualpipe_v", 4, 1, 0, 0});

  EXPECT_EQ(to_text(schedule), "0F0 7F0\n1F0 6F0\n2F0 5F0\n3F0 4F0\n");
  EXPECT_EQ(schedule.rank_of_stage, make("dualpipe_v", 4, 0, 8).rank_of_stage);
}

TEST(ForwardSchedule, GoesInWaves) {
  EXPECT_EQ(to_text(make_forward_schedule({"interleaved", 2, 4, 2, 0})),
            "0F0 0F1 2F0 2F1 0F2 0F3 2F2 2F3\n1F0 1F1 3F0 3F1 1F2 1F3 3F2 3F3\n");
}

}  // namespace
}  // namespace parallel
