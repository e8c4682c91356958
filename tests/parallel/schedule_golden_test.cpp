/// Lists of actions, action by action, from tables that were computed and simulated apart from this code.

#include <gtest/gtest.h>

#include "parallel/schedule_passes.h"
#include "tests/parallel/schedule_cases.h"

namespace parallel {
namespace {

TEST(ScheduleTables, OneForwardOneBackward) {
  EXPECT_EQ(to_text(make("1f1b", 4, 0, 4)),
            "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3\n"
            "1F0 1F1 1F2 1B0 1F3 1B1 1B2 1B3\n"
            "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2B3\n"
            "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3\n");
}

TEST(ScheduleTables, FewerMicrobatchesThanRanks) {
  EXPECT_EQ(to_text(make("1f1b", 4, 0, 2)),
            "0F0 0F1 0B0 0B1\n"
            "1F0 1F1 1B0 1B1\n"
            "2F0 2F1 2B0 2B1\n"
            "3F0 3B0 3F1 3B1\n");
}

TEST(ScheduleTables, GPipe) {
  EXPECT_EQ(to_text(make("gpipe", 2, 0, 3)),
            "0F0 0F1 0F2 0B0 0B1 0B2\n"
            "1F0 1F1 1F2 1B0 1B1 1B2\n");
}

TEST(ScheduleTables, Interleaved) {
  EXPECT_EQ(to_text(make("interleaved", 2, 2, 4)),
            "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3\n"
            "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3\n");
}

TEST(ScheduleTables, InterleavedInUnequalGroups) {
  const Schedule schedule = make("interleaved", 2, 2, 5);

  EXPECT_EQ(to_text(schedule),
            "0F0 0F1 0F2 2F0 2F1 2F2 2B0 0F3 2B1 0F4 2B2 2F3 0B0 2F4 0B1 0B2 2B3 2B4 0B3 0B4\n"
            "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1F3 1B0 1F4 1B1 3F3 1B2 3F4 3B3 3B4 1B3 1B4\n");
  EXPECT_EQ(schedule, make("interleaved", 2, 2, 5, 3)) << "groups of 3 and 2 are what 0 stands for";
}

TEST(ScheduleTables, BreadthFirst) {
  EXPECT_EQ(to_text(make("bfs", 2, 2, 4)),
            "0F0 0F1 0F2 0F3 2F0 2F1 2F2 2F3 2B3 2B2 2B1 2B0 0B3 0B2 0B1 0B0\n"
            "1F0 1F1 1F2 1F3 3F0 3F1 3F2 3F3 3B3 3B2 3B1 3B0 1B3 1B2 1B1 1B0\n");
}

TEST(ScheduleTables, ZeroBubbleH1) {
  EXPECT_EQ(to_text(make("zb_h1", 4, 0, 6)),
            "0F0 0F1 0F2 0F3 0I0 0W0 0F4 0I1 0W1 0F5 0I2 0W2 0I3 0W3 0I4 0W4 0I5 0W5\n"
            "1F0 1F1 1F2 1I0 1F3 1I1 1W0 1F4 1I2 1W1 1F5 1I3 1W2 1I4 1W3 1I5 1W4 1W5\n"
            "2F0 2F1 2I0 2F2 2I1 2F3 2I2 2W0 2F4 2I3 2W1 2F5 2I4 2W2 2I5 2W3 2W4 2W5\n"
            "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4 3I4 3W1 3F5 3I5 3W2 3W3 3W4 3W5\n");
}

TEST(ScheduleTables, InterleavedZeroBubble) {
  EXPECT_EQ(to_text(make("interleaved_zb", 2, 2, 4)),
            "0F0 0F1 2F0 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 2I3 2W3 0I2 0W2 0I3 0W3\n"
            "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 3W3 1I3 1W2 1W3\n");
}

TEST(ScheduleTables, ZeroBubbleV) {
  EXPECT_EQ(to_text(make("zb_v", 2, 0, 4)),
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3\n"
            "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3\n");
}

TEST(ScheduleTables, DualPipeV) {
  EXPECT_EQ(to_text(make("dualpipe_v", 2, 0, 4)),
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3+3B1) (3F2+0B0) 3B2 (3F3+0B1) 3B3 0I2 0W2 0I3 0W3\n"
            "1F0 2F0 1F1 2F1 1F2 2B0 (2F2+1B0) (1F3+2B1) (2F3+1B1) 2B2 1B2 2I3 1I3 2W3 1W3\n");
}

TEST(ScheduleTables, MessagesInOneGlobalOrder) {
  EXPECT_EQ(to_text(add_messages(make("1f1b", 2, 0, 3))),
            "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0F2 0SEND_F2 0RECV_B1 0B1 0RECV_B2 0B2\n"
            "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1RECV_F2 1B1 1SEND_B1 1F2 1B2 1SEND_B2\n");
}

TEST(ScheduleTables, OneRankAccumulatesGradients) {
  EXPECT_EQ(to_text(make("1f1b", 1, 0, 2)), "0F0 0B0 0F1 0B1\n");
  EXPECT_EQ(to_text(make("zb_h1", 1, 0, 2)), "0F0 0I0 0W0 0F1 0I1 0W1\n");
  EXPECT_EQ(to_text(make("interleaved", 1, 2, 2)), "0F0 1F0 1B0 0F1 0B0 1F1 1B1 0B1\n");
}

}  // namespace
}  // namespace parallel
