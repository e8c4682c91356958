#pragma once
/// What a run leaves to compare with another run of the same config, and how far apart two of them are.

#include <map>
#include <string>
#include <vector>

#include "trainer/learner.h"

namespace trainer {

using NamedValues = std::map<std::string, std::vector<double>>;  ///< whole tensors by logical name

struct Trace {
  std::vector<StepResult> steps;
  NamedValues gradients;  ///< of the first step
  NamedValues weights;    ///< after the last
};

struct VerifyOptions {
  int64_t steps = 3;
  double scalar_tolerance = 1e-10;  ///< of loss and gradient norm, relative
  double tensor_tolerance = 1e-9;   ///< of any element of a gradient or weight, relative to its tensor's norm
  /// Gradients this small a share of the norm of all are 0 but for rounding: those of a key bias that softmax ignores,
  /// since no RoPE turns it. A tensor of such is compared relative to this share of the norm of all gradients; and the
  /// weights of such elements, which Adam moves by rounding made large, relative to the norm of all weights.
  double rounding_share = 1e-6;
  /// And where the norm of all is no more than this, all is rounding: a vocabulary of one token has nothing to learn.
  double rounding_norm = 1e-12;
};

/// Tolerances that fit the dtype: rounding grows with the length of sums, and a wrong factor is far larger.
VerifyOptions default_verify_options(tensor::Dtype dtype);

/// The largest relative difference of one kind of number, and where it is.
struct WorstDifference {
  std::string kind;   ///< "loss", "grad_norm", "gradient", "weight"
  std::string where;  ///< "step 2", "layers.0.mlp.up.weight"
  double difference = 0;
  double tolerance = 0;
  bool passes() const { return difference <= tolerance; }  // false for NaN
};

/// One entry per kind. A tensor that one trace lacks, or has with another size, differs by infinity.
std::vector<WorstDifference> compare(const Trace& ours, const Trace& reference, const VerifyOptions& options);

std::string format(const std::vector<WorstDifference>& differences);  ///< a table for people

}  // namespace trainer
