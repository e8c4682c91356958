#pragma once
/// metrics.jsonl: one JSON object per optimizer step, in order of step, numbers at full precision (the shortest text
/// that reads back as the same number).

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/file.h"

namespace trainer {

struct StepMetrics {
  int64_t step = 0;      ///< counts from 1
  int64_t samples = 0;   ///< sequences trained on since step 0
  int64_t tokens = 0;    ///< likewise
  double loss = 0;       ///< mean over the step's valid tokens, natural log
  double grad_norm = 0;  ///< global L2 norm before clipping
  double lr = 0;
  double tokens_per_second = 0;
  double step_ms = 0;
  double mfu = 0;                                     ///< share of the device's dense peak, 0 to 1
  int64_t memory_bytes = 0;                           ///< high-water mark
  std::vector<std::pair<std::string, double>> extra;  ///< further numbers, such as {"valid_loss", 3.2}, in this order
};

/// One line without its end. JSON has no NaN and no infinity: such a number is null, and a last field
/// "non_finite": {"loss": "nan", "grad_norm": "inf"} says which it was.
std::string to_json_line(const StepMetrics& metrics);

/// Appends to metrics.jsonl, one write() a line. StorageError names the file and what the system said.
class MetricsWriter {
 public:
  /// Goes on after `last_step` (0 for a new run): lines of later steps, and half a line that a crash left, are cut off,
  /// so that a resumed run ends with exactly the lines of an unbroken one.
  MetricsWriter(std::string path, int64_t last_step);

  void write(const StepMetrics& metrics);
  void sync();  ///< to disk; before a checkpoint, which must not know of steps that the metrics lack

 private:
  [[noreturn]] void fail(const std::string& what, int error) const;

  std::string path_;
  checkpoint::FileDescriptor fd_;
};

}  // namespace trainer
