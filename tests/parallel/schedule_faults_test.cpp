/// A good schedule, broken in every way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/schedule_passes.h"
#include "tests/parallel/schedule_cases.h"

namespace parallel {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Break {
  const char* good;
  const char* broken;  // in its place
  const char* fault;
};

constexpr const char* kPasses =
    "0F0 0F1 0B0 0B1\n"
    "1F0 1B0 1F1 1B1\n";

constexpr const char* kLowered =
    "0UNSHARD 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0REDUCE_GRAD0 0RECV_B1 0B1 0REDUCE_GRAD1 0RESHARD 0REDUCE_TIED "
    "STEP\n"
    "1RECV_F0 1F0 1RECV_F1 1I0 1SEND_B0 1F1 1I1 1SEND_B1 1W0 1W1 1REDUCE_GRAD1 1REDUCE_TIED STEP\n";

void expect_faults(std::string text, const std::vector<Break>& breaks) {
  ASSERT_THAT(schedule_faults(schedule_from_text(text, "text")), IsEmpty());
  for (const Break& change : breaks) {
    std::string broken = text;
    const size_t at = broken.find(change.good);
    ASSERT_NE(at, std::string::npos) << change.good;
    broken.replace(at, std::string(change.good).size(), change.broken);
    EXPECT_THAT(schedule_faults(schedule_from_text(broken, "text")), Contains(HasSubstr(change.fault))) << broken;
  }
}

TEST(ScheduleFaults, NameMissingAndRepeatedPasses) {
  expect_faults(kPasses, {
                             {"1F1 ", "", "Stage 1, micro-batch 1: 0 F, 1 B, 0 I, 0 W; there is exactly one F."},
                             {"0F1", "0F1 0F1", "Stage 0, micro-batch 1: 2 F"},
                             {"0B1", "0B1 0B1", "Stage 0, micro-batch 1: 1 F, 2 B"},
                             {" 0B1", "", "Stage 0, micro-batch 1: 1 F, 0 B, 0 I, 0 W; there is exactly one B, or"},
                             {"0B1", "0I1", "1 F, 0 B, 1 I, 0 W"},
                             {"0B1", "0B1 0W1", "1 F, 1 B, 0 I, 1 W"},
                             {"0B1", "0I1 0W1 0W1", "1 F, 0 B, 1 I, 2 W"},
                         });
}

TEST(ScheduleFaults, NameStagesOnTwoRanks) {
  expect_faults(kPasses, {{"1F1 1B1", "1F1 1B1 0F1", "Rank 1 has 0F1, but stage 0 is on rank 0."}});
}

TEST(ScheduleFaults, NamePassesBeforeWhatTheyNeed) {
  expect_faults(kPasses, {
                             {"0F1 0B0 0B1", "0B1 0F1 0B0", "Rank 0: 0B1 comes before the F of stage 0 that it needs."},
                             {"0B0 0B1", "0W0 0I0 0B1", "Rank 0: 0W0 comes before the B or I of stage 0"},
                         });
  expect_faults("0F0 1F0 1B0 0B0\n", {
                                         {"0F0 1F0", "1F0 0F0", "1F0 comes before the F of stage 0"},
                                         {"1B0 0B0", "0B0 1B0", "0B0 comes before the B or I of stage 1"},
                                     });
}

TEST(ScheduleFaults, NameRanksThatWaitForEachOther) {
  expect_faults(kPasses, {{"0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1", "0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0",
                           "The ranks wait for each other for ever: rank 0 at 0B0, rank 1 at 1F1."}});
}

TEST(ScheduleFaults, NameBadPairs) {
  Schedule schedule = make("1f1b", 1, 1, 2);
  schedule.ranks[0][1].overlaps_next = true;  // a backward
  EXPECT_THAT(schedule_faults(schedule), Contains(HasSubstr("0B0 overlaps no backward")));
  EXPECT_THAT(schedule_faults(schedule_from_text("(0F0+0B0)\n", "text")), Contains(HasSubstr("rank 0 at 0F0")));
}

TEST(ScheduleFaults, NameMessagesWithoutTheirOtherEnd) {
  expect_faults(kLowered,
                {
                    {"0SEND_F1 ", "", "0SEND_F1 is there 0 times, not once."},
                    {"1RECV_F1 ", "", "1RECV_F1 is there 0 times, not once."},
                    {"0SEND_F1", "0SEND_F1 0SEND_F1", "0SEND_F1 is there 2 times"},
                    {"0F0 0SEND_F0", "0SEND_F0 0F0", "0SEND_F0 comes before the pass that makes"},
                    {"0RECV_B0 0B0 0REDUCE_GRAD0", "0B0 0REDUCE_GRAD0 0RECV_B0", "0RECV_B0 comes after the pass"},
                    {"0F0 ", "0F0 0SEND_B0 ", "0SEND_B0 crosses no ranks"},
                    {"1F0 ", "1F0 1SEND_F0 ", "1SEND_F0 crosses no ranks"},
                });
}

TEST(ScheduleFaults, NameGathersOutOfPlace) {
  expect_faults(kLowered, {
                              {"0UNSHARD 0F0", "0F0 0UNSHARD", "0F0 comes while its stage's parameters are not whole."},
                              {"0UNSHARD", "0UNSHARD 0UNSHARD", "0UNSHARD of a stage that is whole already."},
                              {"0RESHARD", "0RESHARD 0RESHARD", "0RESHARD of a stage that is not whole."},
                              {"0RESHARD ", "", "0UNSHARD has no RESHARD behind it."},
                          });
}

TEST(ScheduleFaults, NameReductionsOutOfPlace) {
  expect_faults(kLowered,
                {
                    {"1W1 1REDUCE_GRAD1", "1W1 1REDUCE_GRAD0", "1REDUCE_GRAD0 is not right behind its B or W."},
                    {"1I0", "1I0 1REDUCE_GRAD0", "1REDUCE_GRAD0 is not right behind its B or W."},
                    {"0B1 0REDUCE_GRAD1", "0B1", "The last gradients of stage 0 are not reduced."},
                });
}

TEST(ScheduleFaults, NameStepsOutOfPlace) {
  expect_faults(kLowered, {
                              {"0REDUCE_TIED STEP", "0REDUCE_TIED", "Rank 0 has 0 STEP"},
                              {"0RESHARD 0REDUCE_TIED STEP", "0REDUCE_TIED STEP 0RESHARD", "Rank 0 has 1 STEP"},
                              {"STEP", "STEP STEP", "Rank 0 has 2 STEP"},
                              {"1REDUCE_TIED ", "", "REDUCE_TIED is there once for the first and once for the last"},
                              {"0UNSHARD", "0REDUCE_TIED 0UNSHARD", "REDUCE_TIED is there once"},
                              {"1W1 1REDUCE_GRAD1 1REDUCE_TIED", "1REDUCE_TIED 1W1 1REDUCE_GRAD1",
                               "REDUCE_TIED comes before the last pass"},
                          });
}

TEST(ScheduleFaults, NameNumbersOutOfRange) {
  const Schedule good = make("1f1b", 2, 1, 2);

  Schedule bad = good;
  bad.ranks[1][0].stage = 2;
  EXPECT_THAT(schedule_faults(bad), Contains(HasSubstr("Rank 1 has 2F0: stages end at 1")));
  bad = good;
  bad.num_microbatches = 1;
  EXPECT_THAT(schedule_faults(bad), Contains(HasSubstr("Rank 0 has 0F1: stages end at 1, micro-batches at 0.")));
  bad = good;
  bad.rank_of_stage[1] = 2;
  EXPECT_THAT(schedule_faults(bad), Contains(HasSubstr("Stage 1 is on rank 2 of 2.")));
  EXPECT_THAT(schedule_faults(Schedule{}), Contains(HasSubstr("there is at least one of each")));
}

TEST(ScheduleFaults, FindEveryPassTakenOutOfEverySchedule) {
  for (const std::string& name : schedule_names()) {
    const Schedule good = add_messages(make(name, 2, 0, 4));
    for (size_t rank = 0; rank < good.ranks.size(); ++rank) {
      for (size_t i = 0; i < good.ranks[rank].size(); ++i) {
        Schedule bad = good;
        bad.ranks[rank].erase(bad.ranks[rank].begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_FALSE(schedule_faults(bad).empty()) << name << " without " << to_text(good.ranks[rank][i]);
        bad = good;
        bad.ranks[rank].push_back(good.ranks[rank][i]);
        EXPECT_FALSE(schedule_faults(bad).empty()) << name << " with another " << to_text(good.ranks[rank][i]);
      }
    }
  }
}

TEST(ScheduleHash, TellsListsApart) {
  EXPECT_EQ(schedule_hash(make("1f1b", 4, 0, 8)), schedule_hash(make("1f1b", 4, 0, 8)));
  EXPECT_NE(schedule_hash(make("1f1b", 4, 0, 8)), schedule_hash(make("1f1b", 4, 0, 9)));
  EXPECT_NE(schedule_hash(make("1f1b", 4, 0, 8)), schedule_hash(make("gpipe", 4, 0, 8)));
}

}  // namespace
}  // namespace parallel
