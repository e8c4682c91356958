#pragma once
/// Does a checkpoint hold exactly the tensors that a run wants?

#include <span>
#include <string>

#include "checkpoint/state.h"

namespace checkpoint {

/// CheckpointError that lists every tensor that is missing, left over, or of another shape or dtype.
void require_same_tensors(const std::string& path, std::span<const TensorInfo> stored,
                          std::span<const NamedTensor> wanted);
/// The same where dtypes may differ within fp32 and fp64: precision.compute was changed.
void require_same_tensors(const std::string& path, std::span<const TensorInfo> stored,
                          std::span<const TensorInfo> wanted);

}  // namespace checkpoint
