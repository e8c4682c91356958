#pragma once
/// Proof that a layout computes what one rank computes: the same config is trained on the launched layout and on one
/// rank, in fp64 (or fp32), and everything is compared by logical name.

#include <memory>
#include <string>
#include <vector>

#include "data/loader.h"
#include "trainer/rank_context.h"

namespace trainer {

struct VerifyOptions {
  int64_t steps = 3;
  double scalar_tolerance = 1e-10;  ///< of loss and gradient norm, relative
  double tensor_tolerance = 1e-9;   ///< of any element of a gradient or weight, relative to its tensor's norm
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

/// The samples of step `step` (counts from 1): sequences [begin, end) of its global batch.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual data::Batch read(int64_t step, int64_t begin, int64_t end) const = 0;
};

/// Tokens that are a function of (seed, sample): random ids, random documents, some targets ignored.
std::unique_ptr<SampleSource> make_synthetic_source(const Config& config);
/// The config's own training data.
std::unique_ptr<SampleSource> make_data_source(const Config& config, const data::Dataset& dataset);

/// All ranks together. One entry per kind, the same on every rank.
std::vector<WorstDifference> verify(const Config& config, tensor::Backend& backend, const RankContext& context,
                                    const SampleSource& source, const VerifyOptions& options);

std::string format(const std::vector<WorstDifference>& differences);  ///< a table for people

}  // namespace trainer
