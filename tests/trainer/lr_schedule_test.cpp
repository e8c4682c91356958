#include "trainer/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace {

using trainer::LrSchedule;
using trainer::LrScheduleConfig;
using Kind = trainer::LrScheduleKind;

constexpr double kPeak = 3e-4;
constexpr double kMin = 3e-5;

LrSchedule schedule(Kind kind, int64_t warmup_steps, int64_t decay_steps, int64_t steps = 100) {
  return LrSchedule({.kind = kind, .warmup_steps = warmup_steps, .decay_steps = decay_steps, .min_lr = kMin},
                    {.peak_lr = kPeak, .steps = steps});
}

class EveryLrSchedule : public testing::TestWithParam<Kind> {};

TEST_P(EveryLrSchedule, WarmsUpLinearlyToExactlyThePeak) {
  const LrSchedule lr = schedule(GetParam(), 8, 0);

  EXPECT_EQ(lr.at(1), kPeak / 8);
  EXPECT_EQ(lr.at(2), kPeak / 4);
  EXPECT_EQ(lr.at(4), kPeak / 2);
  EXPECT_EQ(lr.at(8), kPeak);
  EXPECT_LE(lr.at(9), kPeak);
}

TEST_P(EveryLrSchedule, HasThePeakInStepOneOfAWarmupOfOneStep) { EXPECT_EQ(schedule(GetParam(), 1, 0).at(1), kPeak); }

TEST_P(EveryLrSchedule, EndsAtExactlyTheSmallestRate) {
  for (const int64_t warmup_steps : {0, 1, 7, 33}) {
    const double last = schedule(GetParam(), warmup_steps, 0).at(100);
    EXPECT_EQ(last, GetParam() == Kind::constant ? kPeak : kMin) << warmup_steps;
  }
}

TEST_P(EveryLrSchedule, NeverRisesAfterWarmupAndStaysInRange) {
  const LrSchedule lr = schedule(GetParam(), 10, 0);

  for (int64_t step = 11; step <= 120; ++step) {
    EXPECT_LE(lr.at(step), lr.at(step - 1)) << step;
    EXPECT_GE(lr.at(step), kMin) << step;
  }
}

TEST_P(EveryLrSchedule, CanBeAllWarmup) {
  const LrSchedule lr = schedule(GetParam(), 100, 0);

  EXPECT_EQ(lr.at(50), kPeak / 2);
  EXPECT_EQ(lr.at(100), kPeak);
}

TEST_P(EveryLrSchedule, ServesARunOfOneStep) {
  const double only = schedule(GetParam(), 0, 0, 1).at(1);

  EXPECT_EQ(only, GetParam() == Kind::constant ? kPeak : kMin);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryLrSchedule,
                         testing::Values(Kind::constant, Kind::linear, Kind::cosine, Kind::wsd));

TEST(ConstantLrSchedule, IsThePeakFromTheFirstStepWithoutWarmup) {
  EXPECT_EQ(schedule(Kind::constant, 0, 0).at(1), kPeak);
  EXPECT_EQ(schedule(Kind::constant, 0, 0).at(57), kPeak);
}

TEST(LinearLrSchedule, IsHalfwayInTheMiddle) {
  EXPECT_DOUBLE_EQ(schedule(Kind::linear, 20, 0).at(60), (kPeak + kMin) / 2);
  EXPECT_DOUBLE_EQ(schedule(Kind::linear, 0, 0).at(1), kMin + (kPeak - kMin) * 0.99);
}

TEST(LinearLrSchedule, StaysAtTheSmallestRateAfterAShorterDecay) {
  const LrSchedule lr = schedule(Kind::linear, 10, 40);

  EXPECT_DOUBLE_EQ(lr.at(30), (kPeak + kMin) / 2);
  EXPECT_GT(lr.at(49), kMin);
  EXPECT_EQ(lr.at(50), kMin);
  EXPECT_EQ(lr.at(100), kMin);
}

TEST(CosineLrSchedule, FollowsTheCosine) {
  const LrSchedule lr = schedule(Kind::cosine, 20, 0);

  EXPECT_DOUBLE_EQ(lr.at(40), kMin + (kPeak - kMin) * (1 + std::sqrt(0.5)) / 2);
  EXPECT_DOUBLE_EQ(lr.at(60), (kPeak + kMin) / 2);
  EXPECT_DOUBLE_EQ(lr.at(80), kMin + (kPeak - kMin) * (1 - std::sqrt(0.5)) / 2);
}

TEST(WsdLrSchedule, IsConstantUntilTheLastTenthOfTheRun) {
  const LrSchedule lr = schedule(Kind::wsd, 20, 0);

  EXPECT_EQ(lr.at(21), kPeak);
  EXPECT_EQ(lr.at(90), kPeak);
  EXPECT_DOUBLE_EQ(lr.at(91), kMin + (kPeak - kMin) * 0.9);
  EXPECT_DOUBLE_EQ(lr.at(95), (kPeak + kMin) / 2);
}

TEST(WsdLrSchedule, DecaysOverTheStepsAskedFor) {
  const LrSchedule lr = schedule(Kind::wsd, 0, 40);

  EXPECT_EQ(lr.at(1), kPeak);
  EXPECT_EQ(lr.at(60), kPeak);
  EXPECT_DOUBLE_EQ(lr.at(80), (kPeak + kMin) / 2);
  EXPECT_EQ(lr.at(100), kMin);
}

TEST(WsdLrSchedule, DoesNotDecayBeforeWarmupEnds) {
  const LrSchedule lr = schedule(Kind::wsd, 95, 0);

  EXPECT_EQ(lr.at(95), kPeak);
  EXPECT_DOUBLE_EQ(lr.at(96), kMin + (kPeak - kMin) * 0.8);
}

}  // namespace
