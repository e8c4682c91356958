#include "trainer/learner.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trainer/grad_norm.h"
#include "trainer/scalars.h"

namespace trainer {

using model::HostBatch;
using model::MicroBatch;

namespace {

uint64_t seed_of(const Config& config) { return static_cast<uint64_t>(config.run.seed); }

parallel::ZeroOptions zero_options(const parallel::ParallelConfig& config) {
  return {.stage = config.zero_stage, .reshard = config.zero_reshard, .reduce_every = config.reduce_every};
}

/// Allocation and initial weights come between the model's registration and the optimizer's buffers.
parallel::ParameterStore& ready(parallel::ParameterStore& store, model::Stage& stage, const Config& config,
                                tensor::Ops& ops) {
  store.allocate(ops, config.precision.compute);
  store.initialize(seed_of(config));
  stage.prepare(ops.device(), config.precision.compute);
  return store;
}

/// Sequences [begin, end) of a batch, whose first is sequence `first` of the step's global batch.
HostBatch slice(const data::Batch& batch, int64_t begin, int64_t end, int64_t first) {
  const auto part = [&](const std::vector<int32_t>& all) {
    return std::vector<int32_t>(all.begin() + begin * batch.seq_len, all.begin() + end * batch.seq_len);
  };
  HostBatch host{.num_sequences = end - begin,
                 .tokens = part(batch.tokens),
                 .targets = part(batch.targets),
                 .positions = part(batch.positions),
                 .document_start = part(batch.document_start),
                 .token_index = std::vector<int64_t>(static_cast<size_t>((end - begin) * batch.seq_len))};
  std::iota(host.token_index.begin(), host.token_index.end(), (first + begin) * batch.seq_len);
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

Learner::Learner(const Config& config, tensor::Backend& backend, const RankContext& context)
    : config_(config),
      backend_(backend),
      context_(context),
      store_(zero_options(config.parallel), context.data_parallel()),
      stage_(config.model, model::whole_model(config.model),
             {.recompute = config.train.recompute, .seed = seed_of(config)}, context.tensor_parallel(), store_),
      optimizer_(config.optimizer, ready(store_, stage_, config, *backend.ops), *backend.ops, seed_of(config)) {}

StepResult Learner::train(const StepInputs& inputs, const data::Batch& batch) {
  const StepResult result = compute_gradients(inputs, batch);
  check_finite(inputs.step, result.loss.loss, result.grad_norm);

  const double limit = config_.train.max_grad_norm;
  const double grad_scale = limit > 0 && result.grad_norm > limit ? limit / result.grad_norm : 1;
  optimizer_.update(ops(), {.step = inputs.step, .lr = inputs.lr, .grad_scale = grad_scale});
  store_.publish_values();
  return result;
}

StepResult Learner::compute_gradients(const StepInputs& inputs, const data::Batch& batch) {
  StepResult result;
  result.loss = run_micro_batches(inputs.step, batch);
  store_.finish_gradients();
  result.grad_norm = grad_norm(store_, ops(), context_.world());
  return result;
}

LossSum Learner::run_micro_batches(int64_t step, const data::Batch& batch) {
  parallel::Communicator& dp = context_.group(parallel::Group::dp);
  LossSum sum{.loss = 0, .num_targets = batch.num_valid_targets};
  all_reduce_integers(dp, *backend_.device, std::span(&sum.num_targets, 1));

  store_.begin_step();
  const int64_t size = micro_batch_size(batch.num_sequences);
  for (int64_t begin = 0; begin < batch.num_sequences; begin += size) {
    const int64_t end = std::min(batch.num_sequences, begin + size);
    store_.begin_micro_batch(end == batch.num_sequences);
    MicroBatch tokens = micro_batch(batch, begin, end);
    tokens.step = step;
    tokens.grad_scale = 1.0 / static_cast<double>(std::max<int64_t>(1, sum.num_targets));
    model::Stage::Saved saved;
    stage_.forward(ops(), tokens, {}, saved);
    stage_.backward(ops(), tokens, {}, saved);
    sum.loss += saved.loss;
  }
  sum.loss = all_reduce_scalar(dp, *backend_.device, sum.loss, parallel::Reduction::sum);
  return sum;
}

LossSum Learner::evaluate(const data::Batch& batch, int64_t most_sequences) {
  parallel::Communicator& dp = context_.group(parallel::Group::dp);
  LossSum sum{.loss = 0, .num_targets = batch.num_valid_targets};
  // Every rank makes the same number of passes: under ZeRO-3 they gather parameters together.
  const int64_t size = micro_batch_size(most_sequences);
  for (int64_t begin = 0; begin < most_sequences; begin += size) {
    const int64_t first = std::min(batch.num_sequences, begin);
    const int64_t last = std::min(batch.num_sequences, begin + size);
    sum.loss += stage_.evaluate(ops(), micro_batch(batch, first, last));
  }
  sum.loss = all_reduce_scalar(dp, *backend_.device, sum.loss, parallel::Reduction::sum);
  all_reduce_integers(dp, *backend_.device, std::span(&sum.num_targets, 1));
  return sum;
}

std::vector<StateFragment> Learner::gradients() const {
  std::vector<StateFragment> fragments;
  for (const parallel::Parameter* parameter : store_.parameters()) {
    const parallel::Range owned = store_.owned_range(*parameter);
    const parallel::ParameterUnit& unit = parameter->unit();
    const int64_t begin = owned.size() > 0 ? parameter->offset() + owned.begin - unit.own.begin : 0;
    fragments.push_back({"grad", parameter, owned, unit.own_grads.rows(begin, begin + owned.size())});
  }
  return fragments;
}

void Learner::loaded() {
  optimizer_.refresh_values(ops());
  store_.publish_values();
}

MicroBatch Learner::micro_batch(const data::Batch& batch, int64_t begin, int64_t end) const {
  const int64_t first = context_.data_rank() * batch.num_sequences;
  return to_device(slice(batch, begin, end, first), config_.model.sliding_window, *backend_.device);
}

int64_t Learner::micro_batch_size(int64_t num_sequences) const {
  return config_.train.micro_batch_size > 0 ? config_.train.micro_batch_size : std::max<int64_t>(1, num_sequences);
}

}  // namespace trainer
