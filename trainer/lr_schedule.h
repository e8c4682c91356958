#pragma once
/// The learning rate of each optimizer step. Steps count from 1: step 1 is the first update.
///
/// With peak = optimizer.lr, w = warmup_steps, d = decay_steps, and t the decay done so far, from 0 to 1:
///   warmup     step <= w             peak * step / w           step 1 has peak / w, step w exactly the peak
///   constant                         peak
///   linear     t = (step - w) / d    min_lr + (peak - min_lr) * (1 - t)
///   cosine     t = (step - w) / d    min_lr + (peak - min_lr) * (1 + cos(pi t)) / 2
///   wsd        peak up to step train.steps - d, then linear with t = (step - (train.steps - d)) / d
/// d = 0 stands for train.steps - w (linear, cosine) and train.steps / 10 (wsd; rounded up, no more than train.steps -
/// w). Then the last step has exactly min_lr. Past the decay the rate stays at min_lr.

#include <cstdint>

#include "trainer/config.h"

namespace trainer {

class LrSchedule {
 public:
  struct Run {
    double peak_lr = 0;
    int64_t steps = 0;  ///< of the whole run
  };

  LrSchedule(const LrScheduleConfig& config, const Run& run);

  double at(int64_t step) const;

 private:
  double decayed(double fraction) const;

  LrScheduleConfig config_;
  Run run_;
  int64_t decay_begin_;  // the last step before the decay
  int64_t decay_steps_;
};

}  // namespace trainer
