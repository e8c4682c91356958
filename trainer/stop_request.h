#pragma once
/// SIGTERM, SIGINT and SIGUSR1 ask for an orderly end: the step in progress is finished, the state saved.

#include <csignal>
#include <initializer_list>

namespace trainer {

/// Catches the signals for as long as it lives; then they do what they did before. One at a time per process.
class StopRequest {
 public:
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;

  /// The signal that came, or 0. A second SIGINT ends the process at once, for people who press Ctrl-C twice.
  int signal() const;

 private:
  static constexpr std::initializer_list<int> kSignals = {SIGTERM, SIGINT, SIGUSR1};
  struct sigaction previous_[3];
};

}  // namespace trainer
