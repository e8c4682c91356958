#include "tests/fuzz/watched_run.h"

#include <fmt/core.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

namespace fuzz {
namespace {

using Clock = std::chrono::steady_clock;

std::string describe(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("ended with {}", WEXITSTATUS(status));
}

}  // namespace

Progress::Progress() {
  void* memory = ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  counts_ = new (memory) Counts;
}

Progress::~Progress() { ::munmap(counts_, sizeof(Counts)); }

std::string run_watched(Progress& progress, int most_seconds, const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child < 0) return "fork failed";
  if (child == 0) std::exit(body() ? 0 : 1);  // not _exit(): leaks are looked for on the way out
  uint64_t last_seed = 0;
  Clock::time_point changed = Clock::now();
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) != child) {
    const uint64_t seed = std::atomic_ref(progress.counts().seed).load();
    if (seed != std::exchange(last_seed, seed)) changed = Clock::now();
    if (Clock::now() - changed > std::chrono::seconds(most_seconds)) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return fmt::format("took more than {} s for one input", most_seconds);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return describe(status);
}

}  // namespace fuzz
