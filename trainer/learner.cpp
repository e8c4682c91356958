#include "trainer/learner.h"

#include <algorithm>
#include <cmath>

namespace trainer {

using model::HostBatch;
using model::MicroBatch;

namespace {

uint64_t seed_of(const Config& config) { return static_cast<uint64_t>(config.run.seed); }

/// Allocation and initial weights come between the model's registration and the optimizer's buffers.
parallel::ParameterStore& ready(parallel::ParameterStore& store, model::Stage& stage, const Config& config,
                                tensor::Device& device) {
  store.allocate(device, config.precision.compute);
  store.initialize(seed_of(config));
  stage.prepare(device, config.precision.compute);
  return store;
}

/// Sequences [begin, end) of a batch.
HostBatch slice(const data::Batch& batch, int64_t begin, int64_t end) {
  const auto part = [&](const std::vector<int32_t>& all) {
    return std::vector<int32_t>(all.begin() + begin * batch.seq_len, all.begin() + end * batch.seq_len);
  };
  HostBatch host{.num_sequences = end - begin,
                 .tokens = part(batch.tokens),
                 .targets = part(batch.targets),
                 .positions = part(batch.positions),
                 .document_start = part(batch.document_start),
                 .token_index = {}};
  for (int64_t token = begin * batch.seq_len; token < end * batch.seq_len; ++token) host.token_index.push_back(token);
  return host;
}

void check_finite(int64_t step, double loss, double grad_norm) {
  if (std::isfinite(loss) && std::isfinite(grad_norm)) return;
  throw tensor::NumericsError(fmt::format(
      "step {}: loss = {}, gradient norm = {}.\n"
      "  The step was not applied and no checkpoint was written after it: weights and saved checkpoints are intact.\n"
      "  Fix: resume with a lower optimizer.lr or a longer lr_schedule.warmup_steps; with "
      "precision.compute = \"bf16\",\n  see whether fp32 diverges too.",
      step, loss, grad_norm));
}

}  // namespace

Learner::Learner(const Config& config, tensor::Backend& backend)
    : config_(config),
      backend_(backend),
      stage_(config.model, model::whole_model(config.model),
             {.recompute = config.train.recompute, .seed = seed_of(config)}, store_),
      optimizer_(config.optimizer, ready(store_, stage_, config, *backend.device), *backend.ops, seed_of(config)) {}

StepResult Learner::train(const StepInputs& inputs, const data::Batch& batch) {
  StepResult result;
  result.loss = accumulate_gradients(inputs.step, batch);
  result.grad_norm = optimizer_.grad_norm(ops());
  check_finite(inputs.step, result.loss.loss, result.grad_norm);

  const double limit = config_.train.max_grad_norm;
  const double grad_scale = limit > 0 && result.grad_norm > limit ? limit / result.grad_norm : 1;
  optimizer_.update(ops(), {.step = inputs.step, .lr = inputs.lr, .grad_scale = grad_scale});
  return result;
}

LossSum Learner::accumulate_gradients(int64_t step, const data::Batch& batch) {
  LossSum sum{.loss = 0, .num_targets = batch.num_valid_targets};
  store_.forget_gradients();
  const int64_t size = micro_batch_size(batch);
  for (int64_t begin = 0; begin < batch.num_sequences; begin += size) {
    const HostBatch host = slice(batch, begin, std::min(batch.num_sequences, begin + size));
    MicroBatch micro_batch = to_device(host, config_.model.sliding_window, *backend_.device);
    micro_batch.step = step;
    micro_batch.grad_scale = 1.0 / static_cast<double>(std::max<int64_t>(1, sum.num_targets));
    model::Stage::Saved saved;
    stage_.forward(ops(), micro_batch, {}, saved);
    stage_.backward(ops(), micro_batch, {}, saved);
    sum.loss += saved.loss;
  }
  store_.zero_unwritten_gradients();
  return sum;
}

LossSum Learner::evaluate(const data::Batch& batch) {
  LossSum sum{.loss = 0, .num_targets = batch.num_valid_targets};
  const int64_t size = micro_batch_size(batch);
  for (int64_t begin = 0; begin < batch.num_sequences; begin += size) {
    const HostBatch host = slice(batch, begin, std::min(batch.num_sequences, begin + size));
    sum.loss += stage_.evaluate(ops(), to_device(host, config_.model.sliding_window, *backend_.device));
  }
  return sum;
}

int64_t Learner::micro_batch_size(const data::Batch& batch) const {
  return config_.train.micro_batch_size > 0 ? config_.train.micro_batch_size
                                            : std::max<int64_t>(1, batch.num_sequences);
}

}  // namespace trainer
