#pragma once
/// Proof that a layout computes what one rank computes: the same config is trained on the launched layout and on one
/// rank, in fp64 (or fp32), and everything is compared by logical name.

#include <memory>
#include <vector>

#include "data/loader.h"
#include "trainer/rank_context.h"
#include "trainer/trace.h"

namespace trainer {

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

/// All ranks together. On rank 0, one entry per kind; on the others nothing where all pass, else one that does not.
std::vector<WorstDifference> verify(const Config& config, tensor::Backend& backend, const RankContext& context,
                                    const SampleSource& source, const VerifyOptions& options);

}  // namespace trainer
