#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tests/parallel/schedule_cases.h"
#include "tests/support/temporary_folder.h"

namespace parallel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const std::string& text) {
  return tests::message_of<tensor::ConfigError>([&] { schedule_from_text(text, "my.txt"); });
}

TEST(ScheduleText, HasAnActionForEveryKind) {
  const std::string text =
      "0UNSHARD 0F0 0SEND_F0 0RECV_B0 0B0 0REDUCE_GRAD0 0RESHARD 0REDUCE_TIED STEP\n"
      "1RECV_F0 1F0 1I0 1SEND_B0 1W0 1REDUCE_GRAD0 1REDUCE_TIED STEP\n";

  EXPECT_EQ(to_text(schedule_from_text(text, "text")), text);
}

TEST(ScheduleText, SkipsCommentsAndBlankLines) {
  const Schedule schedule = schedule_from_text("# two ranks\n\n  1F0\t1B0 \r\n # the other\n0F0 0B0", "text");

  EXPECT_EQ(to_text(schedule), "1F0 1B0\n0F0 0B0\n");
  EXPECT_THAT(schedule.rank_of_stage, ElementsAre(1, 0));
  EXPECT_EQ(schedule.num_microbatches, 1);
}

TEST(ScheduleText, NamesTheLineAndTheWord) {
  EXPECT_THAT(error_of("0F0 0B0\n1F0 1X0\n"), AllOf(HasSubstr("my.txt:2: \"1X0\" is no action"), HasSubstr("Fix:")));
  for (const char* word :
       {"F0", "0F", "0F0x", "0", "STEP1", "0UNSHARD1", "UNSHARD", "0f0", "-1F0", "1F-1", "0F0,0F1", "(0F0+0B0", "(0F0)",
        "(0B0+0F0)", "(0F0+0I0)", "()", "(+)", "9999999F0", "0F99999999999999"}) {
    EXPECT_THAT(error_of(std::string("0F0 ") + word), HasSubstr(std::string("my.txt:1: \"") + word + "\"")) << word;
  }
}

TEST(ScheduleText, QuotesNoRubbish) {
  EXPECT_THAT(error_of(std::string("\x7f\x01\xff", 3)), HasSubstr("\"???\""));
  EXPECT_THAT(error_of(std::string(10'000, 'x')),
              AllOf(HasSubstr("xxx...\""), testing::Not(HasSubstr(std::string(50, 'x')))));
}

TEST(ScheduleText, CountsFromZeroAndLeavesNothingOut) {
  EXPECT_THAT(error_of("0F0 0B0\n2F0 2B0\n"), HasSubstr("my.txt: there is a stage 2, but no stage 1."));
  EXPECT_THAT(error_of("0F1 0B1\n"), HasSubstr("there is a micro-batch 1, but no micro-batch 0."));
  EXPECT_THAT(error_of("# nothing\n"), HasSubstr("my.txt: this pipeline schedule has no actions."));
}

class ScheduleFile : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    tests::write_file(folder_ / "schedule.txt", text);
    return "file:" + (folder_ / "schedule.txt");
  }
  std::string problem(const ScheduleSettings& settings) {
    const std::vector<LayoutProblem> problems = schedule_problems(settings);
    return problems.size() == 1 ? problems[0].key + ": " + problems[0].text : "";
  }

  tests::TemporaryFolder folder_;
};

TEST_F(ScheduleFile, IsUsedAsItIs) {
  const Schedule schedule = make("zb_v", 3, 2, 5);
  const std::string name = write(to_text(schedule));

  EXPECT_EQ(default_virtual_stages(name), 2);
  EXPECT_EQ(make_schedule({name, 3, 5, 0, 0}), schedule);
  EXPECT_EQ(make_schedule({name, 3, 5, 2, 0}), schedule);
  EXPECT_EQ(make_forward_schedule({name, 3, 9, 0, 0}), make_forward_schedule({"zb_v", 3, 9, 0, 0}));
}

TEST_F(ScheduleFile, HasToFitTheRun) {
  const std::string name = write(to_text(make("interleaved", 2, 2, 4)));

  EXPECT_THAT(problem({name, 4, 4, 0, 0}), HasSubstr("for 2 pipeline ranks; this run has 4"));
  EXPECT_THAT(problem({name, 2, 6, 0, 0}), HasSubstr("of 4 micro-batches per step; this run has 6"));
  EXPECT_THAT(problem({name, 2, 4, 3, 0}), HasSubstr("has 2 stages on a rank, but parallel.virtual_stages = 3"));
  EXPECT_THAT(problem({write("0F0 0B0\n1F0 2F0 2B0 1B0\n"), 2, 1, 0, 0}),
              HasSubstr("3 stages cannot be spread evenly"));
}

TEST_F(ScheduleFile, HasToBeAStep) {
  EXPECT_THAT(problem({write("0F0 0F1 0B0\n"), 1, 2, 0, 0}),
              AllOf(HasSubstr("parallel.schedule: file:"), HasSubstr("Stage 0, micro-batch 1: 1 F, 0 B")));
  EXPECT_THAT(problem({write("0F0 0B0 STEP\n"), 1, 1, 0, 0}), HasSubstr("Rank 0 has STEP: a file holds F, B, I and W"));
  EXPECT_THAT(problem({write("0F0 0SEND_F0 0B0\n1F0 1B0\n"), 2, 1, 0, 0}),
              AllOf(HasSubstr("Rank 0 has 0SEND_F0: a file holds"), testing::Not(HasSubstr("not once"))));
  EXPECT_THAT(problem({write("0F0\n"), 1, 1, 0, 0}), HasSubstr("There is no backward."));
  EXPECT_THROW(make_schedule({write("0F0\n"), 1, 1, 0, 0}), tensor::LayoutError);
}

TEST_F(ScheduleFile, HasToExist) {
  EXPECT_THROW(make_schedule({"file:" + (folder_ / "none"), 1, 1, 0, 0}), tensor::ConfigError);
  EXPECT_THROW(make_schedule({"file:" + folder_.path(), 1, 1, 0, 0}), tensor::ConfigError);
  EXPECT_THROW(make_schedule({write(""), 1, 1, 0, 0}), tensor::ConfigError);
  EXPECT_THROW(make_schedule({"file:", 1, 1, 0, 0}), tensor::ConfigError);
  EXPECT_THROW(make_schedule({"file:/dev/zero", 1, 1, 0, 0}), tensor::ConfigError) << "has no end";
}

TEST_F(ScheduleFile, MayNotAskForMorePassesThanMemoryHolds) {
  constexpr int kNumStages = 3000;
  std::string text;
  for (int i = 0; i < kNumStages; ++i) text += fmt::format("{}F{} ", i, i);

  EXPECT_THAT(problem({write(text), 1, kNumStages, 0, 0}),
              HasSubstr("3000 stages * 3000 micro-batches = 9000000 forw"));
}

TEST_F(ScheduleFile, ListsAFewOfManyFaults) {
  std::string text = "0F0 0B0";
  for (int i = 1; i < 50; ++i) text += fmt::format(" 0F{}", i);

  EXPECT_THAT(problem({write(text), 1, 50, 0, 0}), HasSubstr("And 41 more."));
}

}  // namespace
}  // namespace parallel
