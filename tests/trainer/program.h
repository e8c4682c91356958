#pragma once
/// The trainer program itself, run in a test's folder.

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/child_process.h"

namespace trainer {

/// Two threads that sleep while they wait: tests share their cores.
inline tests::CommandLine trainer_command(std::vector<std::string> arguments, const std::string& folder) {
  arguments.insert(arguments.begin(), TRAINER_BINARY);
  return {.arguments = std::move(arguments),
          .environment = {"OMP_NUM_THREADS=2", "OMP_WAIT_POLICY=passive"},
          .folder = folder};
}

inline tests::Outcome run_trainer(std::vector<std::string> arguments, const std::string& folder) {
  return tests::run_command(trainer_command(std::move(arguments), folder));
}

/// How many messages with a remedy a program wrote.
inline int64_t count_fixes(const std::string& text) {
  int64_t count = 0;
  for (size_t at = text.find("Fix: "); at != std::string::npos; at = text.find("Fix: ", at + 1)) ++count;
  return count;
}

/// One message on standard error, with a remedy, nothing else anywhere, in little time.
inline void expect_refusal(const tests::Outcome& outcome, int exit_code, const std::string& tells) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.errors;
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(count_fixes(outcome.errors), 1) << outcome.errors;
  EXPECT_NE(outcome.errors.find(tells), std::string::npos) << tells << " is not in: " << outcome.errors;
  EXPECT_EQ(outcome.errors.find("bug in trainer"), std::string::npos) << outcome.errors;
  EXPECT_LT(outcome.cpu_seconds, 2);
}

}  // namespace trainer
