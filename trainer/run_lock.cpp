#include "trainer/run_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <thread>

#include "tensor/error.h"

namespace trainer {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{50};

/// False: another process holds it.
bool try_to_lock(int fd) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) return true;  // no locks here
  }
  return true;
}

std::string this_process() {
  std::array<char, 256> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

/// What the holder wrote, without what a terminal would obey.
std::string holder(int fd) {
  std::array<char, 300> text{};
  const ssize_t count = ::pread(fd, text.data(), text.size(), 0);
  std::string name;
  for (const char c : std::string_view(text.data(), count > 0 ? static_cast<size_t>(count) : 0)) {
    if (c >= 0x20 && c < 0x7f) name += c;
  }
  return name.empty() ? "another process" : name;
}

}  // namespace

void RunLock::hold_existing(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    if (::access(path.c_str(), W_OK) == 0) (void)acquire(path);
  }
}

void RunLock::hold(const std::vector<std::string>& files) {
  for (const std::string& path : files) {
    const int fd = acquire(path).get();
    const std::string own = this_process() + "\n";
    // for the message to others; nothing is lost without it
    if (::ftruncate(fd, 0) == 0) (void)!::pwrite(fd, own.data(), own.size(), 0);
  }
}

checkpoint::FileDescriptor& RunLock::acquire(const std::string& path) {
  const auto found = held_.find(path);
  if (found != held_.end()) return found->second;
  checkpoint::FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  if (fd.get() < 0) {
    throw tensor::StorageError(
        fmt::format("{}: the run's lock cannot be opened: {}.\n  Fix: set run.dir and "
                    "checkpoint.dir to folders that this user may write to.",
                    path, checkpoint::errno_text(errno)));
  }
  for (const Clock::time_point begin = Clock::now(); !try_to_lock(fd.get());) {
    if (Clock::now() - begin > patience_) {
      throw tensor::LayoutError(
          fmt::format("{} is held by {}: a run is under way in this folder, and two would overwrite each other's "
                      "checkpoints.\n  Fix: wait for it, end it, or set another run.dir and checkpoint.dir.",
                      path, holder(fd.get())));
    }
    std::this_thread::sleep_for(kPause);
  }
  return held_.emplace(path, std::move(fd)).first->second;
}

}  // namespace trainer
