#pragma once
/// Where the run is, in one line: rewritten in place on a terminal, a line every log.every_steps in files and pipes.

#include <chrono>
#include <cstdint>

#include "trainer/log.h"
#include "trainer/metrics.h"
#include "trainer/progress_format.h"

namespace trainer {

class ProgressReport {
 public:
  struct Options {
    int64_t steps = 0;        ///< of the whole run
    int64_t every_steps = 1;  ///< between plain lines; the last step always has one
  };

  /// `log` must outlive this.
  ProgressReport(Log& log, const Options& options) : log_(log), options_(options) {}

  /// After every step.
  void show(const StepMetrics& metrics);
  /// The live line goes; what is said next stands alone.
  void finish() { log_.show_live(""); }

 private:
  ProgressLine line_of(const StepMetrics& metrics);
  bool is_due(int64_t step) const { return step % options_.every_steps == 0 || step == options_.steps; }

  Log& log_;
  Options options_;
  double mean_step_ms_ = 0;  // recent steps weigh more
  std::chrono::steady_clock::time_point last_live_;
};

}  // namespace trainer
