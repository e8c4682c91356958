#pragma once
/// The model with everything an optimizer step needs: one object per rank, from which training, evaluation and
/// sampling all work.

#include <memory>
#include <vector>

#include "checkpoint/state.h"
#include "data/loader.h"
#include "model/stage.h"
#include "trainer/optimizer.h"

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
  LossSum loss;
  double grad_norm = 0;  ///< before clipping
};

class Learner {
 public:
  /// Builds the model with its initial weights.
  Learner(const Config& config, tensor::Backend& backend);

  /// Forward and backward over the batch, micro-batch by micro-batch, then clipping and the update. NumericsError, with
  /// no weight touched, when the loss or the gradient is not finite.
  StepResult train(const StepInputs& inputs, const data::Batch& batch);
  LossSum evaluate(const data::Batch& batch);

  /// All that a checkpoint holds. Loading into it is followed by loaded().
  std::vector<checkpoint::NamedTensor> state() { return optimizer_.state(); }
  void loaded() { optimizer_.refresh_values(ops()); }

  const model::Stage& stage() const { return stage_; }
  const parallel::ParameterStore& parameters() const { return store_; }
  tensor::Ops& ops() const { return *backend_.ops; }

 private:
  LossSum accumulate_gradients(int64_t step, const data::Batch& batch);
  int64_t micro_batch_size(const data::Batch& batch) const;

  const Config& config_;
  tensor::Backend& backend_;
  parallel::ParameterStore store_;
  model::Stage stage_;
  Optimizer optimizer_;
};

}  // namespace trainer
