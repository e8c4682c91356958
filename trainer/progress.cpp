#include "trainer/progress.h"

#include <limits>

namespace trainer {
namespace {

constexpr double kWeightOfLastStep = 0.1;
constexpr auto kLiveInterval = std::chrono::milliseconds(100);  // a terminal is slower than small steps
constexpr int kNoLimit = std::numeric_limits<int>::max();

}  // namespace

void ProgressReport::show(const StepMetrics& metrics) {
  const ProgressLine line = line_of(metrics);
  if (is_due(line.step)) {
    const std::string text = format_progress(line, kNoLimit);
    log_.has_terminal() ? log_.to_file(text) : log_.info(text);
  }
  const auto now = std::chrono::steady_clock::now();
  if (log_.has_terminal() && (now - last_live_ >= kLiveInterval || line.step == options_.steps)) {
    last_live_ = now;
    log_.show_live(format_progress(line, log_.terminal_width() - 1));  // a full last column would wrap
  }
}

ProgressLine ProgressReport::line_of(const StepMetrics& metrics) {
  const double weight = mean_step_ms_ == 0 ? 1 : kWeightOfLastStep;
  mean_step_ms_ += weight * (metrics.step_ms - mean_step_ms_);
  const auto steps_left = static_cast<double>(options_.steps - metrics.step);
  return {.step = metrics.step,
          .steps = options_.steps,
          .loss = metrics.loss,
          .tokens_per_second = metrics.tokens_per_second,
          .mfu = metrics.mfu,
          .seconds_left = steps_left * mean_step_ms_ / 1000,
          .memory_bytes = metrics.memory_bytes};
}

}  // namespace trainer
