#include "parallel/schedule_passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parallel/schedule_cases.h"

namespace parallel {
namespace {

using Gather = ZeroActions::Gather;
using Reduce = ZeroActions::Reduce;

std::string with_zero(const std::string& passes, Gather gather, Reduce reduce) {
  return to_text(add_zero_actions(schedule_from_text(passes, "text"), {gather, reduce}));
}

std::string gathered(const std::string& passes, Gather gather) {
  std::string text = with_zero(passes, gather, Reduce::per_step);
  for (size_t at = 0; (at = text.find("REDUCE_GRAD")) != std::string::npos;) {
    const size_t begin = text.rfind(' ', at);
    text.erase(begin, text.find_first_of(" \n", at) - begin);
  }
  return text;
}

TEST(ZeroActions, LeaveGathersToTheBlocks) {
  EXPECT_EQ(with_zero("0F0 0F1 0B0 0B1\n", Gather::per_pass, Reduce::per_step), "0F0 0F1 0B0 0B1 0REDUCE_GRAD1\n");
}

TEST(ZeroActions, GatherOncePerStep) {
  EXPECT_EQ(gathered("0F0 1F0 1B0 0B0\n", Gather::per_step), "0UNSHARD 0F0 1UNSHARD 1F0 1B0 0B0 0RESHARD 1RESHARD\n");
}

TEST(ZeroActions, GatherTheNextRunDuringTheLastPassOfThisOne) {
  EXPECT_EQ(gathered("0F0 0F1 1F0 1F1 1B1 1B0 0B1 0B0\n", Gather::per_run),
            "0UNSHARD 0F0 1UNSHARD 0F1 0RESHARD 1F0 1F1 1B1 0UNSHARD 1B0 1RESHARD 0B1 0B0 0RESHARD\n");
}

TEST(ZeroActions, KeepAStageThatOnePassInterrupts) {
  EXPECT_EQ(
      gathered("0F0 1F0 1B0 0F1 1F1 1B1 0B0 0B1\n", Gather::per_run),
      "0UNSHARD 1UNSHARD 0F0 0RESHARD 1F0 0UNSHARD 1B0 0F1 0RESHARD 1F1 0UNSHARD 1B1 1RESHARD 0B0 0B1 0RESHARD\n");
}

TEST(ZeroActions, TakeAPairAsOnePassOfBothStages) {
  EXPECT_EQ(gathered("0F0 1F0 0F1 (1F1+1B0) 1B1 0B0 0B1\n", Gather::per_run),
            "0UNSHARD 1UNSHARD 0F0 1F0 0F1 0RESHARD (1F1+1B0) 0UNSHARD 1B1 1RESHARD 0B0 0B1 0RESHARD\n");
  EXPECT_EQ(gathered("0F0 1F0 (0F1+1B0) 1F1 1B1 0B0 0B1\n", Gather::per_step),
            "0UNSHARD 0F0 1UNSHARD 1F0 (0F1+1B0) 1F1 1B1 0B0 0B1 0RESHARD 1RESHARD\n");
}

TEST(ZeroActions, BreadthFirstGathersEveryStageTwice) {
  const std::string text = to_text(add_zero_actions(make("bfs", 2, 3, 4), {Gather::per_run, Reduce::per_run}));
  const std::string first = text.substr(0, text.find('\n'));

  EXPECT_EQ(first,
            "0UNSHARD 0F0 0F1 0F2 2UNSHARD 0F3 0RESHARD 2F0 2F1 2F2 4UNSHARD 2F3 2RESHARD "
            "4F0 4F1 4F2 4F3 4B3 4B2 4B1 2UNSHARD 4B0 4REDUCE_GRAD0 4RESHARD "
            "2B3 2B2 2B1 0UNSHARD 2B0 2REDUCE_GRAD0 2RESHARD 0B3 0B2 0B1 0B0 0REDUCE_GRAD0 0RESHARD");
}

TEST(ZeroActions, ReduceAfterEveryPassOrTheLast) {
  const std::string passes = "0F0 0I0 0F1 0I1 0W0 0W1\n";

  EXPECT_EQ(with_zero(passes, Gather::per_pass, Reduce::per_step), "0F0 0I0 0F1 0I1 0W0 0W1 0REDUCE_GRAD1\n");
  EXPECT_EQ(with_zero(passes, Gather::per_pass, Reduce::per_pass),
            "0F0 0I0 0F1 0I1 0W0 0REDUCE_GRAD0 0W1 0REDUCE_GRAD1\n");
  EXPECT_EQ(with_zero(passes, Gather::per_pass, Reduce::per_run), "0F0 0I0 0F1 0I1 0W0 0W1 0REDUCE_GRAD1\n");
}

TEST(ZeroActions, ReduceAfterRunsThatHaveWeights) {
  EXPECT_EQ(with_zero("0F0 1F0 0F1 1F1 1I0 1W0 1I1 0I0 1W1 0W0 0I1 0F2 1F2 1B2 0I2 0W1 0W2\n", Gather::per_pass,
                      Reduce::per_run),
            "0F0 1F0 0F1 1F1 1I0 1W0 1REDUCE_GRAD0 1I1 0I0 1W1 1REDUCE_GRAD1 0W0 0REDUCE_GRAD0 0I1 0F2 1F2 "
            "1B2 1REDUCE_GRAD2 0I2 0W1 0W2 0REDUCE_GRAD2\n");
}

TEST(ZeroActions, AddNoReductionWithoutBackwards) {
  EXPECT_EQ(with_zero("0F0 0F1\n", Gather::per_step, Reduce::per_pass), "0UNSHARD 0F0 0F1 0RESHARD\n");
}

TEST(Messages, CarryOtherActionsWithTheirPass) {
  const Schedule schedule = schedule_from_text(
      "0UNSHARD 0F0 0B0 0REDUCE_GRAD0 0RESHARD STEP\n"
      "1UNSHARD 1F0 1B0 1REDUCE_GRAD0 1RESHARD STEP\n",
      "text");

  EXPECT_EQ(to_text(add_messages(schedule)),
            "0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD0 0RESHARD STEP\n"
            "1RECV_F0 1UNSHARD 1F0 1B0 1REDUCE_GRAD0 1SEND_B0 1RESHARD STEP\n");
}

TEST(Messages, OfAPairComeAfterBothPasses) {
  const Schedule lowered = add_messages(make("dualpipe_v", 2, 2, 4));

  EXPECT_THAT(to_text(lowered), ::testing::HasSubstr("(0F3+3B1) 0SEND_F3 3SEND_B1"));
}

TEST(Messages, StayAwayFromNeighboursOnOneRank) {
  const std::string text = to_text(add_messages(make("zb_v", 2, 2, 2)));

  EXPECT_EQ(text.find("1SEND_F"), std::string::npos) << "stages 1 and 2 are on rank 1";
  EXPECT_EQ(text.find("2RECV_F"), std::string::npos);
  EXPECT_NE(text.find("2SEND_F"), std::string::npos);
  EXPECT_EQ(to_text(add_messages(make("interleaved", 1, 3, 2))), to_text(make("interleaved", 1, 3, 2)));
}

TEST(Messages, CarryForwardsAlone) {
  EXPECT_EQ(to_text(add_messages(make_forward_schedule({"1f1b", 2, 2, 1, 0}))),
            "0F0 0SEND_F0 0F1 0SEND_F1\n"
            "1RECV_F0 1F0 1RECV_F1 1F1\n");
}

TEST(Step, EndsEveryRank) {
  EXPECT_EQ(to_text(add_step(make("gpipe", 2, 1, 1), SharedTable::none)), "0F0 0B0 STEP\n1F0 1B0 STEP\n");
}

TEST(Step, SumsASharedTableOverTwoRanks) {
  const auto tied = [](const Schedule& schedule) {
    return to_text(add_step(schedule, SharedTable::first_and_last_stage));
  };

  EXPECT_EQ(tied(make("gpipe", 3, 1, 1)), "0F0 0B0 0REDUCE_TIED STEP\n1F0 1B0 STEP\n2F0 2B0 2REDUCE_TIED STEP\n");
  EXPECT_EQ(tied(make("gpipe", 1, 1, 1)), "0F0 0B0 STEP\n");
  EXPECT_EQ(tied(make("zb_v", 2, 2, 3)).find("REDUCE_TIED"), std::string::npos) << "rank 0 has both stages";
}

}  // namespace
}  // namespace parallel
