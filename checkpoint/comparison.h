#pragma once
/// Do two checkpoints hold the same state? The layouts that wrote them do not matter.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/state.h"

namespace checkpoint {

/// A tensor that is not bit for bit the same in both.
struct TensorDifference {
  std::string name;
  std::optional<TensorInfo> a, b;  ///< absent where a side lacks it
  int64_t num_different = 0;       ///< elements; of tensors of one shape
  double largest = 0;              ///< of |a - b|; infinity where a NaN is among them
};

struct Comparison {
  RunInfo a, b;
  int64_t num_equal = 0;                      ///< tensors
  std::vector<TensorDifference> differences;  ///< by name

  /// Counters, seed and every bit of every tensor. Config and program may differ.
  bool is_equal() const { return a.progress == b.progress && differences.empty(); }
};

/// Of folders or single files; memory for two tensors at a time. CheckpointError, DamagedError.
Comparison compare(const std::string& a, const std::string& b);

}  // namespace checkpoint
