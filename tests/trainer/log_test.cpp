#include "trainer/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/error.h"
#include "tests/support/pseudo_terminal.h"
#include "tests/support/temporary_folder.h"
#include "trainer/printable.h"

namespace {

using testing::HasSubstr;
using testing::MatchesRegex;
using trainer::Log;
using trainer::LogOptions;
using trainer::Speaker;

const Speaker kOther{.rank = 5, .world_size = 8, .node = "n02"};

/// What `body` leaves on a console that is no terminal.
template <class Body>
std::string console_of(const Speaker& speaker, Body&& body) {
  std::FILE* console = std::tmpfile();
  {
    Log log({.file = "", .console = console, .speaker = speaker});
    body(log);
  }
  return tests::read_stream(console);
}

TEST(Log, SpeaksPlainlyWhenAlone) {
  const std::string text = console_of({}, [](Log& log) {
    log.info("hello {}");
    log.warn("careful");
    log.error("no");
  });

  EXPECT_EQ(text, "hello {}\nwarning: careful\nerror: no\n");
}

TEST(Log, NamesRankNodeAndStepInAWorldOfSeveral) {
  const std::string text = console_of(kOther, [](Log& log) {
    log.set_step(1200);
    log.error("no");
  });

  EXPECT_EQ(text, "[rank 5/8, node n02, step 1200] error: no\n");
}

TEST(Log, LeavesHowThingsGoToTheFirstRank) {
  const auto say = [](Log& log) { log.info("step 1"); };

  EXPECT_EQ(console_of(kOther, say), "");
  EXPECT_EQ(console_of({.rank = 0, .world_size = 8, .node = "n01"}, say), "step 1\n");
}

TEST(Log, EscapesControlBytesButKeepsLines) {
  const std::string text = console_of({}, [](Log& log) { log.warn("a\x1b[31m\r\x07\x7f\tb\n  Fix: \xc3\xa9"); });

  EXPECT_EQ(text, "warning: a\\x1b[31m\\x0d\\x07\\x7f\\x09b\n  Fix: \xc3\xa9\n");
}

TEST(Log, DatesAndAppendsToItsFile) {
  const tests::TemporaryFolder folder;
  const std::string file = folder / "log.txt";
  for (const char* message : {"first", "second"}) Log({.file = file, .console = nullptr, .speaker = {}}).info(message);

  const std::string date = "[0-9]+-[0-9]+-[0-9]+ [0-9]+:[0-9]+:[0-9]+\\.[0-9]+";
  EXPECT_THAT(tests::read_file(file), MatchesRegex(date + " first\n" + date + " second\n"));
}

TEST(Log, IsOnDiskAsSoonAsItIsSaid) {
  const tests::TemporaryFolder folder;
  const std::string file = folder / "log.txt";
  Log log({.file = file, .console = nullptr, .speaker = {}});
  log.info("now");

  EXPECT_THAT(tests::read_file(file), HasSubstr("now"));
}

TEST(Log, KeepsFromTheConsoleWhatIsForTheFile) {
  const tests::TemporaryFolder folder;
  std::FILE* console = std::tmpfile();
  Log({.file = folder / "log.txt", .console = console, .speaker = {}}).to_file("details");

  EXPECT_EQ(tests::read_stream(console), "");
  EXPECT_THAT(tests::read_file(folder / "log.txt"), HasSubstr("details"));
}

TEST(Log, NamesTheFileThatCannotBeOpened) {
  const tests::TemporaryFolder folder;
  tests::write_file(folder / "file", "");
  const std::string path = folder / "file/log.txt";

  const std::string message =
      tests::message_of<tensor::StorageError>([&] { Log({.file = path, .console = nullptr, .speaker = {}}); });

  EXPECT_THAT(message, HasSubstr(path));
  EXPECT_THAT(message, HasSubstr("Fix:"));
}

TEST(Log, GoesOnWithoutAFileWhenTheDiskIsFull) {
  std::FILE* console = std::tmpfile();
  {
    Log log({.file = "/dev/full", .console = console, .speaker = {}});
    log.info("one");
    log.info("two");
  }
  const std::string text = tests::read_stream(console);

  EXPECT_THAT(text, MatchesRegex("one\nwarning: log.txt cannot be written: .*\ntwo\n"));
}

TEST(Log, HasALiveLineOnlyOnTheTerminalOfTheFirstRank) {
  tests::PseudoTerminal terminal(100);
  const Log first({.file = "", .console = terminal.stream(), .speaker = {}});
  const Log other({.file = "", .console = terminal.stream(), .speaker = kOther});

  EXPECT_TRUE(first.has_terminal());
  EXPECT_EQ(first.terminal_width(), 100);
  EXPECT_FALSE(other.has_terminal());
  EXPECT_EQ(console_of({},
                       [](Log& log) {
                         EXPECT_FALSE(log.has_terminal());
                         EXPECT_EQ(log.terminal_width(), 80);
                         log.show_live("live");
                       }),
            "");
}

TEST(Log, PrintsMessagesAboveTheLiveLine) {
  tests::PseudoTerminal terminal(80);
  Log log({.file = "", .console = terminal.stream(), .speaker = {}});
  log.show_live("step 1");
  (void)terminal.shown();

  log.info("saved");
  const std::string with_live_line = terminal.shown();
  log.show_live("");
  log.info("done");

  EXPECT_EQ(with_live_line, "\r\x1b[Ksaved\r\nstep 1");  // the terminal makes \r\n of \n
  EXPECT_EQ(terminal.shown(), "\r\x1b[Kdone\r\n");
}

TEST(Printable, EscapesAndCutsTextFromFiles) {
  EXPECT_EQ(trainer::printable("a\x1b[2J\nb\x7f"), "a\\x1b[2J\\x0ab\\x7f");
  EXPECT_EQ(trainer::printable(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(trainer::printable(std::string(5000, 'x')), std::string(200, 'x') + "...");
}

}  // namespace
