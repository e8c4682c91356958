#include "data/mapped_ranges.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "data/byte_file.h"
#include "tensor/error.h"

namespace data {
namespace {

struct Range {
  std::atomic<uintptr_t> begin{0};  ///< 0: free; 1: being filled in. Set last, so that the handler sees whole ranges.
  std::atomic<size_t> size{0};
  std::array<char, 512> path{};  ///< shortened at its beginning
};

std::array<Range, 1024> ranges;  // NOLINT: see the header
std::atomic<int> handler_rank{0};

void write_text(const char* text) { [[maybe_unused]] const auto n = ::write(STDERR_FILENO, text, std::strlen(text)); }

/// Async-signal-safe, unlike every formatting function of the library.
void write_number(uint64_t value) {
  char digits[21];
  char* first = digits + sizeof(digits) - 1;
  *first = 0;
  do {
    *--first = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value);
  write_text(first);
}

const Range* find_range(uintptr_t address) {
  for (const Range& range : ranges) {
    const uintptr_t begin = range.begin.load(std::memory_order_acquire);
    if (begin > 1 && address >= begin && address - begin < range.size.load(std::memory_order_relaxed)) return &range;
  }
  return nullptr;
}

void handle_sigbus(int signal, siginfo_t* info, void*) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
  const Range* range = find_range(address);
  if (!range) {  // not ours: returning with the default action set repeats the access and ends the process
    ::signal(signal, SIG_DFL);
    return;
  }
  write_text("[rank ");
  write_number(static_cast<uint64_t>(handler_rank.load(std::memory_order_relaxed)));
  write_text("] ");
  write_text(range->path.data());
  write_text(": byte ");
  write_number(address - range->begin.load(std::memory_order_relaxed));
  write_text(
      " cannot be read any more.\n  The file was cut short while in use, or its disk or network failed (SIGBUS).\n"
      "  Fix: restore the file and run again; data.access = \"pread\" avoids mapping.\n");
  ::_exit(static_cast<int>(tensor::ExitCode::data));
}

}  // namespace

void remember_mapping(const void* begin, size_t size, const std::string& path) {
  for (Range& range : ranges) {
    uintptr_t free = 0;
    if (!range.begin.compare_exchange_strong(free, 1)) continue;
    const size_t kept = std::min(path.size(), range.path.size() - 1);
    std::memcpy(range.path.data(), path.data() + path.size() - kept, kept);
    range.path[kept] = 0;
    range.size.store(size, std::memory_order_relaxed);
    range.begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_release);
    return;
  }
}

void forget_mapping(const void* begin) {
  for (Range& range : ranges) {
    if (range.begin.load() == reinterpret_cast<uintptr_t>(begin)) range.begin.store(0);
  }
}

void install_sigbus_handler(int rank) {
  handler_rank.store(rank);
  struct sigaction action = {};
  action.sa_sigaction = handle_sigbus;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  CHECK(::sigaction(SIGBUS, &action, nullptr) == 0, "SIGBUS can be handled");
}

}  // namespace data
