#pragma once
/// What a checkpoint holds: logical tensors, and a few numbers. Nothing about the layout that wrote it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace checkpoint {

/// How far the run is. Counters are totals since step 0.
struct Progress {
  int64_t step = 0;     ///< optimizer steps done
  int64_t samples = 0;  ///< sequences trained on; with the seed, all that the data order needs
  int64_t tokens = 0;
  uint64_t seed = 0;  ///< of the run: initial weights, data order, dropout

  bool operator==(const Progress&) const = default;
};

struct RunInfo {
  Progress progress;
  std::string config_text;  ///< the resolved TOML of the run that wrote it; information, never executed
  std::string build_id;     ///< of the program that wrote it

  bool operator==(const RunInfo&) const = default;
};

/// One logical tensor under the name it has in the file: "weights/layers.0.attention.q.weight",
/// "exp_avg/layers.0.attention.q.weight". The part before '/' is an HDF5 group. The tensor is borrowed, contiguous, and
/// has at least one dim (a size may be 0). Saving reads it, loading writes it.
struct NamedTensor {
  std::string name;
  tensor::Tensor* tensor = nullptr;
};

/// What a file says of one tensor.
struct TensorInfo {
  std::string name;
  tensor::Dtype dtype = tensor::Dtype::fp32;
  tensor::Shape shape;
};

/// A path of at most three parts, none empty, ".", ".." or the config's, without control bytes.
bool is_valid_name(std::string_view name);

/// A path from a checkpoint's folder to a file in it.
bool stays_inside(std::string_view path);

/// The file is not what its writer wrote: cut short, bits changed, or not a checkpoint. An older one may still be good,
/// so resuming tries that; any other CheckpointError (the model differs) would repeat itself and ends the run.
class DamagedError : public tensor::CheckpointError {
 public:
  explicit DamagedError(const std::string& message) : ErrorOf(message) {}
};

}  // namespace checkpoint
