#include "trainer/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>

#include "tests/support/pseudo_terminal.h"
#include "tests/support/temporary_folder.h"

namespace {

using testing::HasSubstr;
using testing::Not;
using trainer::format_bytes;
using trainer::format_count;
using trainer::format_duration;
using trainer::format_progress;
using trainer::Log;
using trainer::ProgressLine;
using trainer::ProgressReport;

TEST(FormatCount, KeepsThreeDigits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(7.4), "7");
  EXPECT_EQ(format_count(999.4), "999");
  EXPECT_EQ(format_count(999.6), "1.00k");
  EXPECT_EQ(format_count(1234), "1.23k");
  EXPECT_EQ(format_count(9999), "10.0k");
  EXPECT_EQ(format_count(12'345), "12.3k");
  EXPECT_EQ(format_count(99'960), "100k");
  EXPECT_EQ(format_count(999'499), "999k");
  EXPECT_EQ(format_count(1.2e6), "1.20M");
  EXPECT_EQ(format_count(3.456e16), "34.6P");
  EXPECT_EQ(format_count(std::nan("")), "?");
  EXPECT_EQ(format_count(HUGE_VAL), "?");
}

TEST(FormatBytes, CountsInPowersOfAThousand) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(850'000), "850 kB");
  EXPECT_EQ(format_bytes(1'200'000'000), "1.20 GB");
  EXPECT_EQ(format_bytes(139'000'000'000), "139 GB");
}

TEST(FormatDuration, ShowsTheTwoLargestUnits) {
  EXPECT_EQ(format_duration(0), "0s");
  EXPECT_EQ(format_duration(42.4), "42s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(185), "3m05s");
  EXPECT_EQ(format_duration(3599.9), "1h00m");
  EXPECT_EQ(format_duration(3725), "1h02m");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600 + 59 * 60), "3d04h");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(std::nan("")), "?");
  EXPECT_EQ(format_duration(1e300), "?");
}

const ProgressLine kLine{.step = 120,
                         .steps = 1000,
                         .loss = 3.21449,
                         .tokens_per_second = 12'345,
                         .mfu = 0.412,
                         .seconds_left = 3725,
                         .memory_bytes = 1'200'000'000};

TEST(FormatProgress, ShowsAllWhereThereIsRoom) {
  const std::string all = "step  120/1000  loss 3.2145  12.3k tok/s  MFU 41.2%  ETA 1h02m  mem 1.20 GB";

  EXPECT_EQ(format_progress(kLine, static_cast<int>(all.size())), all);
}

TEST(FormatProgress, LeavesOutWhatMattersLeastWhereThereIsNot) {
  EXPECT_EQ(format_progress(kLine, 74), "step  120/1000  loss 3.2145  12.3k tok/s  MFU 41.2%  ETA 1h02m");
  EXPECT_EQ(format_progress(kLine, 60), "step  120/1000  loss 3.2145  12.3k tok/s  ETA 1h02m");
  EXPECT_EQ(format_progress(kLine, 40), "step  120/1000  loss 3.2145  ETA 1h02m");
  EXPECT_EQ(format_progress(kLine, 30), "step  120/1000  loss 3.2145");
  EXPECT_EQ(format_progress(kLine, 14), "step  120/1000");
  EXPECT_EQ(format_progress(kLine, 4), "step");
  EXPECT_EQ(format_progress(kLine, 0), "");
}

TEST(FormatProgress, NeverExceedsTheWidth) {
  for (int width = 0; width < 100; ++width) EXPECT_LE(std::ssize(format_progress(kLine, width)), width);
}

trainer::StepMetrics metrics_of(int64_t step) {
  trainer::StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 2.5;
  metrics.step_ms = 2000;
  return metrics;
}

TEST(ProgressReport, PrintsALineEveryFewStepsWhereThereIsNoTerminal) {
  std::FILE* console = std::tmpfile();
  {
    Log log({.file = "", .console = console, .speaker = {}});
    ProgressReport report(log, {.steps = 25, .every_steps = 10});
    for (int64_t step = 1; step <= 25; ++step) report.show(metrics_of(step));
    report.finish();
  }
  const std::string text = tests::read_stream(console);

  EXPECT_THAT(text, testing::MatchesRegex("step 10/25 .*ETA 30s.*\nstep 20/25 .*ETA 10s.*\nstep 25/25 .*ETA 0s.*\n"));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
}

TEST(ProgressReport, RewritesOneLineOnATerminalAndKeepsPlainLinesInTheFile) {
  const tests::TemporaryFolder folder;
  tests::PseudoTerminal terminal(60);
  {
    Log log({.file = folder / "log.txt", .console = terminal.stream(), .speaker = {}});
    ProgressReport report(log, {.steps = 3, .every_steps = 2});
    for (int64_t step = 1; step <= 3; ++step) report.show(metrics_of(step));
    report.finish();
  }
  const std::string shown = terminal.shown();
  const std::string file = tests::read_file(folder / "log.txt");

  EXPECT_THAT(shown, HasSubstr("\r\x1b[Kstep 1/3  loss 2.5000  0 tok/s  MFU 0.0%  ETA 4s"));
  EXPECT_THAT(shown, HasSubstr("\r\x1b[Kstep 3/3"));
  EXPECT_THAT(shown, testing::EndsWith("\r\x1b[K"));
  EXPECT_THAT(shown, Not(HasSubstr("\n")));
  EXPECT_THAT(file, testing::MatchesRegex(".* step 2/3 .*\n.* step 3/3 .*\n"));
}

}  // namespace
