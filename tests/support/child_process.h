#pragma once
/// A program run by a test: its exit code, what it printed, and a limit on its time.

#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/pseudo_terminal.h"

namespace tests {

struct CommandLine {
  std::vector<std::string> arguments;      ///< the program first
  std::vector<std::string> environment{};  ///< "NAME=VALUE", added to this process's
  std::string folder = "/";                ///< where it runs
  std::string output{};                    ///< a file that takes standard output; empty: Outcome::output
};

struct Outcome {
  int exit_code = -1;  ///< as a shell says it: 128 + N for an end by signal N
  std::string output, errors;
  double cpu_seconds = 0;  ///< other than wall time, the same on a busy machine
};

class ChildProcess {
 public:
  explicit ChildProcess(const CommandLine& command) : output_(std::tmpfile()), errors_(std::tmpfile()) {
    std::vector<std::string> environment = command.environment;
    for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);  // the first one counts
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addchdir_np(&actions, command.folder.c_str());
    ::posix_spawn_file_actions_adddup2(&actions, ::fileno(output_), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, ::fileno(errors_), STDERR_FILENO);
    if (!command.output.empty()) {
      ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, command.output.c_str(), O_WRONLY, 0);
    }
    const int error = ::posix_spawn(&pid_, command.arguments.front().c_str(), &actions, nullptr,
                                    pointers(command.arguments).data(), pointers(environment).data());
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("cannot run " + command.arguments.front());
  }
  ~ChildProcess() {
    if (is_running_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    if (output_ != nullptr) read_stream(output_);
    if (errors_ != nullptr) read_stream(errors_);
  }
  ChildProcess(const ChildProcess&) = delete;

  void send(int signal) const { ::kill(pid_, signal); }

  /// False as long as it runs. Once it ended, its outcome is kept.
  bool has_ended() {
    rusage usage{};
    int status = 0;
    if (is_running_ && ::wait4(pid_, &status, WNOHANG, &usage) == pid_) {
      is_running_ = false;
      outcome_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      outcome_.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    }
    return !is_running_;
  }

  /// Kills what runs longer than `limit`, and says so among the errors.
  Outcome wait(std::chrono::seconds limit = std::chrono::seconds(60)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    std::string note;
    while (!has_ended()) {
      if (note.empty() && std::chrono::steady_clock::now() > end) {
        note = "(killed: it ran too long)";
        send(SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    outcome_.output = read_stream(std::exchange(output_, nullptr));
    outcome_.errors = read_stream(std::exchange(errors_, nullptr)) + note;
    return outcome_;
  }

 private:
  static std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
    all.push_back(nullptr);
    return all;
  }
  static double seconds(const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }

  std::FILE* output_;
  std::FILE* errors_;
  pid_t pid_ = 0;
  bool is_running_ = true;
  Outcome outcome_;
};

inline Outcome run_command(const CommandLine& command) { return ChildProcess(command).wait(); }

}  // namespace tests
