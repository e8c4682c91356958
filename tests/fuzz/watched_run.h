#pragma once
/// A run in a process of its own, watched by this one: a crash or a hang is reported with the seed that brings it back.

#include <cstdint>
#include <functional>
#include <string>

namespace fuzz {

struct Counts {
  int64_t num_refused = 0, num_read = 0;
  uint64_t seed = 0;  ///< of the last input
};

/// Tells how far a run is, across processes.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;

  Counts& counts() { return *counts_; }

 private:
  Counts* counts_;
};

/// Calls body() in a child process. Empty where it returned true; else what became of it, "killed by signal 11
/// (Segmentation fault)". One input may take `most_seconds`.
std::string run_watched(Progress& progress, int most_seconds, const std::function<bool()>& body);

}  // namespace fuzz
