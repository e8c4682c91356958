#include "trainer/stop_request.h"

#include <cstddef>

namespace trainer {

namespace {

// A signal handler reaches nothing but statics; it sets this flag and does no more.
volatile std::sig_atomic_t received_signal = 0;

void remember(int signal) {
  if (signal == SIGINT && received_signal == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  received_signal = signal;
}

}  // namespace

StopRequest::StopRequest() {
  received_signal = 0;
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  size_t i = 0;
  for (const int signal : kSignals) sigaction(signal, &action, &previous_[i++]);
}

StopRequest::~StopRequest() {
  size_t i = 0;
  for (const int signal : kSignals) sigaction(signal, &previous_[i++], nullptr);
}

int StopRequest::signal() const { return received_signal; }

}  // namespace trainer
