#pragma once
/// The model with everything an optimizer step needs: one object per rank, from which training, evaluation and
/// sampling all work.

#include <memory>
#include <vector>

#include "data/loader.h"
#include "model/stage.h"
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
  LossSum loss;          ///< of the global batch
  double grad_norm = 0;  ///< before clipping
};

class Learner {
 public:
  /// Builds the model with its initial weights. All ranks together, as for every call below.
  Learner(const Config& config, tensor::Backend& backend, const RankContext& context);

  /// Forward and backward over this rank's part of the batch, micro-batch by micro-batch, then clipping and the update.
  /// NumericsError, with no weight touched, when the loss or the gradient is not finite.
  StepResult train(const StepInputs& inputs, const data::Batch& batch);
  /// The first half of train(): gradients are complete and summed, weights untouched.
  StepResult compute_gradients(const StepInputs& inputs, const data::Batch& batch);

  /// `batch` is this rank's part, up to `most_sequences` over all ranks.
  LossSum evaluate(const data::Batch& batch, int64_t most_sequences);

  std::vector<StateFragment> state() const { return optimizer_.state(); }
  std::vector<StateFragment> gradients() const;  ///< kind "grad", of the elements that this rank keeps
  /// After the values of state() were overwritten.
  void loaded();

  const model::Stage& stage() const { return stage_; }
  parallel::ParameterStore& parameters() { return store_; }
  const RankContext& context() const { return context_; }
  tensor::Ops& ops() const { return *backend_.ops; }

 private:
  LossSum run_micro_batches(int64_t step, const data::Batch& batch);
  model::MicroBatch micro_batch(const data::Batch& batch, int64_t begin, int64_t end) const;
  int64_t micro_batch_size(int64_t num_sequences) const;

  const Config& config_;
  tensor::Backend& backend_;
  const RankContext& context_;
  parallel::ParameterStore store_;
  model::Stage stage_;
  Optimizer optimizer_;
};

}  // namespace trainer
