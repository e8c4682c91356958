#include "trainer/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trainer {
namespace {

int64_t decay_steps_of(const LrScheduleConfig& config, int64_t steps) {
  if (config.decay_steps > 0) return config.decay_steps;
  const int64_t left = steps - config.warmup_steps;
  return config.kind == LrScheduleKind::wsd ? std::min((steps + 9) / 10, left) : left;
}

}  // namespace

LrSchedule::LrSchedule(const LrScheduleConfig& config, const Run& run)
    : config_(config), run_(run), decay_steps_(decay_steps_of(config, run.steps)) {
  decay_begin_ = config.kind == LrScheduleKind::wsd ? run.steps - decay_steps_ : config.warmup_steps;
}

double LrSchedule::at(int64_t step) const {
  if (step <= config_.warmup_steps) {
    return run_.peak_lr * (static_cast<double>(step) / static_cast<double>(config_.warmup_steps));
  }
  if (config_.kind == LrScheduleKind::constant || step <= decay_begin_) return run_.peak_lr;
  if (step >= decay_begin_ + decay_steps_) return config_.min_lr;
  return decayed(static_cast<double>(step - decay_begin_) / static_cast<double>(decay_steps_));
}

double LrSchedule::decayed(double fraction) const {
  const double share_left =
      config_.kind == LrScheduleKind::cosine ? (1 + std::cos(std::numbers::pi * fraction)) / 2 : 1 - fraction;
  return config_.min_lr + (run_.peak_lr - config_.min_lr) * share_left;
}

}  // namespace trainer
