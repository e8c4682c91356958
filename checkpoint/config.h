#pragma once
/// Table [checkpoint] of a run config: when the state of a run is saved, and from where it starts.

#include <cstdint>
#include <string>

namespace checkpoint {

struct CheckpointConfig {
  std::string dir;               ///< empty: "checkpoints" inside run.dir
  int64_t every_steps = 1'000;   ///< steps between saves; 0: only at the end, and when told to stop
  double every_minutes = 0;      ///< also save when this much time passed since the last save; 0: no
  int64_t keep_last = 3;         ///< older checkpoints are deleted; 0: keep all
  int64_t keep_every = 0;        ///< but those of steps that this divides stay; 0: none do
  bool async = true;             ///< written while training goes on; false: training waits
  double staging_mb = 1024;      ///< async: most memory of a rank for copies of what changes before it is written
  int64_t max_failed_saves = 3;  ///< in a row; more end the run
  std::string resume = "auto";   ///< "auto": the newest in dir, if any; "none": start anew; else the path of one
};

}  // namespace checkpoint
