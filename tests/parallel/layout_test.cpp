#include "parallel/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/error.h"

namespace parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Layout, FillsTheWorldWithDataParallelism) {
  const ResolvedLayout layout = resolve_layout({.tp = 2, .pp = 2, .dp_out = 2}, 16);

  EXPECT_TRUE(layout.problems.empty());
  EXPECT_EQ(layout.degrees, (Degrees{.tp = 2, .dp_in = 2, .pp = 2, .dp_out = 2}));
}

TEST(Layout, AcceptsExpertsWiderThanTensorParallelism) {
  // DeepSeek-V3 on 1,024 ranks: tp * pp * ep alone is twice the world.
  const ResolvedLayout layout = resolve_layout({.tp = 2, .pp = 16, .ep = 64}, 1024);

  EXPECT_TRUE(layout.problems.empty());
  EXPECT_EQ(layout.degrees.dp(), 32);
  EXPECT_EQ(layout.degrees.expert_dp(), 1);
}

TEST(Layout, NeedsTheLeastCommonMultipleOfDenseAndExpertRanks) {
  EXPECT_TRUE(resolve_layout({.sp = 3, .ep = 4}, 12).problems.empty());

  const ResolvedLayout six = resolve_layout({.sp = 3, .ep = 4}, 6);
  ASSERT_EQ(six.problems.size(), 1U);
  EXPECT_THAT(six.problems[0].text, HasSubstr("1 * 1 * 12 = 12 ranks"));
}

TEST(Layout, RefusesExpertsThatDoNotDivideTheBlock) {
  const ResolvedLayout layout = resolve_layout({.tp = 2, .pp = 16, .ep = 48}, 1024);

  ASSERT_EQ(layout.problems.size(), 1U);
  EXPECT_EQ(layout.problems[0].key, "parallel.ep");
  EXPECT_THAT(layout.problems[0].text,
              AllOf(HasSubstr("1 * 48 = 48 does not divide tp * sp * dp_in = 2 * 1 * 32 = 64"),
                    HasSubstr("1, 2, 4, 8, 16, 32 or 64"), HasSubstr("16 * 1 * 48 = 768 ranks")));
}

TEST(Layout, SaysWhichWorldsFit) {
  const ResolvedLayout layout = resolve_layout({.tp = 2}, 3);

  ASSERT_EQ(layout.problems.size(), 1U);
  EXPECT_EQ(layout.problems[0].key, "parallel.dp");
  EXPECT_THAT(layout.problems[0].text, AllOf(HasSubstr("2 * 1 * 1 * 1 = 2 does not divide the 3 ranks"),
                                             HasSubstr("launch 2 or 4 ranks (any multiple of 2)")));
}

TEST(Layout, SaysTheWorldThatGivenDegreesNeed) {
  const ResolvedLayout layout = resolve_layout({.tp = 2, .pp = 2, .dp = 3}, 8);

  ASSERT_EQ(layout.problems.size(), 1U);
  EXPECT_THAT(layout.problems[0].text, AllOf(HasSubstr("2 * 1 * 2 * 3 = 12, but this launch has 8 ranks"),
                                             HasSubstr("launch 12 ranks, or set parallel.dp = 2")));
}

TEST(Layout, ReportsAllProblemsAtOnce) {
  const ResolvedLayout two = resolve_layout({.dp = 6, .dp_out = 4}, 8);
  const ResolvedLayout three = resolve_layout({.tp = 0, .sp = -1, .dp = -2}, 8);
  const ResolvedLayout experts = resolve_layout({.dp = 4, .ep = 3}, 8);

  ASSERT_EQ(two.problems.size(), 2U);
  EXPECT_EQ(two.problems[1].key, "parallel.dp_out");
  EXPECT_THAT(two.problems[1].text, HasSubstr("use 1, 2, 3 or 6"));
  EXPECT_EQ(three.problems.size(), 3U);
  ASSERT_EQ(experts.problems.size(), 2U);
  EXPECT_EQ(experts.problems[1].key, "parallel.ep");
}

TEST(Layout, SurvivesDegreesThatOverflow) {
  EXPECT_EQ(resolve_layout({.tp = int64_t{1} << 40}, 8).problems.size(), 1U);
  EXPECT_FALSE(resolve_layout({.tp = 1 << 20, .sp = 1 << 20, .pp = 1 << 20, .dp = 1 << 20}, 8).problems.empty());
  EXPECT_FALSE(resolve_layout({.ep = 1 << 20, .expert_tp = 1 << 20}, 8).problems.empty());
}

TEST(Layout, ThrowsOneErrorThatListsAll) {
  try {
    throw_if_any({{"parallel.tp", "first"}, {"parallel.ep", "second"}});
    FAIL() << "nothing was thrown";
  } catch (const tensor::LayoutError& error) {
    EXPECT_STREQ(error.what(), "first\nsecond");
  }
  throw_if_any({});
}

}  // namespace
}  // namespace parallel
