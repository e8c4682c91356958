#pragma once
/// Numbers of a run as people read them. Pure functions.

#include <cstdint>
#include <string>

namespace trainer {

std::string format_count(double count);       ///< "950", "12.3k", "1.20M": three digits
std::string format_bytes(int64_t bytes);      ///< "850 kB", "1.20 GB": powers of 1000
std::string format_duration(double seconds);  ///< "42s", "3m05s", "1h02m", "3d04h"; "?" where unknown

struct ProgressLine {
  int64_t step = 0;
  int64_t steps = 0;  ///< of the whole run
  double loss = 0;
  double tokens_per_second = 0;
  double mfu = 0;
  double seconds_left = 0;
  int64_t memory_bytes = 0;
};

/// "step  120/1000  loss 3.2145  12.3k tok/s  MFU 41.2%  ETA 1h02m  mem 1.20 GB", without what does not fit into
/// `width` columns: memory goes first, then MFU, speed, ETA, loss.
std::string format_progress(const ProgressLine& line, int width);

}  // namespace trainer
