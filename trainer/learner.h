#pragma once
/// The model with everything an optimizer step needs: one object per rank, from which training, evaluation and
/// sampling all work.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "data/loader.h"
#include "model/pipeline.h"
#include "trainer/optimizer.h"
#include "trainer/rank_context.h"

namespace trainer {

/// Sums over the valid targets of a batch.
struct LossSum {
  double loss = 0;  ///< natural log
  int64_t num_targets = 0;
  double mean() const { return num_targets > 0 ? loss / static_cast<double>(num_targets) : 0; }
};

/// One optimizer step's worth of work, as asked for and as it went.
struct StepInputs {
  int64_t step = 1;  ///< counts from 1
  double lr = 0;
};
struct StepResult {
  LossSum loss;                                                ///< of the global batch
  double grad_norm = 0;                                        ///< before clipping
  std::optional<model::RoutingStatistics::Summary> routing{};  ///< where the model has experts
};

/// Waiting of a pipeline's ranks in one step, beside the time of their passes and beside all time.
struct Bubble {
  double idle_over_ideal = 0;
  double idle_over_total = 0;
};

class Learner {
 public:
  /// Builds the model with its initial weights. All ranks together, as for every call below.
  Learner(const Config& config, tensor::Backend& backend, const RankContext& context);

  /// Forward and backward over this rank's part of the batch, micro-batch by micro-batch, then clipping and the update.
  /// NumericsError, with no weight touched, when the loss or the gradient is not finite.
  /// `before_update` is called when weights and optimizer state are about to change.
  StepResult train(const StepInputs& inputs, const data::Batch& batch, const std::function<void()>& before_update = {});
  /// The first half of train(): gradients are complete and summed, weights untouched.
  StepResult compute_gradients(const StepInputs& inputs, const data::Batch& batch);

  /// `batch` is this rank's part, up to `most_sequences` over all ranks.
  LossSum evaluate(const data::Batch& batch, int64_t most_sequences);

  std::vector<StateFragment> state() const { return optimizer_.state(); }
  std::vector<StateFragment> gradients() const;  ///< kind "grad", of the elements that this rank keeps
  /// How much of the last training walk the pipeline's ranks waited. All ranks together.
  Bubble measure_bubble();

  /// After the values of state() were overwritten.
  void loaded();
  /// The ranks together hold every weight of the model once. InternalError where they do not.
  void check_parameter_count();

  const model::Pipeline& pipeline() const { return pipeline_; }
  parallel::ParameterStore& parameters() { return store_; }
  const RankContext& context() const { return context_; }
  tensor::Ops& ops() const { return *backend_.ops; }

 private:
  LossSum run_micro_batches(int64_t step, const data::Batch& batch);
  /// The batch in micro-batches, of `most_sequences` at the most: the last ones may be short, or empty.
  std::vector<model::HostBatch> micro_batches(const data::Batch& batch, int64_t most_sequences) const;
  double sum_of_losses(double of_last_stage);
  std::optional<model::RoutingStatistics::Summary> sum_of_routing();

  const Config& config_;
  tensor::Backend& backend_;
  const RankContext& context_;
  parallel::ParameterStore store_;
  model::Pipeline pipeline_;
  Optimizer optimizer_;
};

}  // namespace trainer
