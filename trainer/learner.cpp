#include "trainer/learner.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/flops.h"
#include "trainer/grad_norm.h"
#include "trainer/scalars.h"

namespace trainer {

using model::HostBatch;
using parallel::Group;

namespace {

uint64_t seed_of(const Config& config) { return static_cast<uint64_t>(config.run.seed); }

parallel::ZeroOptions zero_options(const parallel::ParallelConfig& config) {
  constexpr double kMebibyte = 1 << 20;
  return {.stage = config.zero_stage,
          .reshard = config.zero_reshard,
          .reduce_every = config.reduce_every,
          .bucket_bytes = static_cast<int64_t>(std::ceil(config.bucket_mb * kMebibyte))};
}

model::PipelineOptions pipeline_options(const Config& config, const RankContext& context) {
  const PipelinePlan& plan = context.pipeline();
  return {.stage = {.recompute = config.train.recompute, .seed = seed_of(config), .tied = &context.tied()},
          .spans = plan.spans(),
          .rank_of_stage = plan.rank_of_stage(),
          .log = context.events()};
}

/// Allocation and initial weights come between the model's registration and the optimizer's buffers.
parallel::ParameterStore& ready(parallel::ParameterStore& store, model::Pipeline& pipeline, const Config& config,
                                tensor::Ops& ops) {
  store.allocate(ops, config.precision.compute);
  store.initialize(seed_of(config));
  pipeline.prepare(ops.device(), config.precision.compute);
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
      pipeline_(config.model, pipeline_options(config, context), context.layer_groups(),
                context.group(parallel::Group::pp), store_),
      optimizer_(config.optimizer, ready(store_, pipeline_, config, *backend.ops), *backend.ops, seed_of(config)) {}

void Learner::check_parameter_count() {
  int64_t built = store_.owned_numel();
  all_reduce_integers(context_.world(), *backend_.device, std::span(&built, 1));
  const int64_t expected = model::parameter_count(config_.model);
  CHECK(built == expected, "the ranks hold {} weights, the model has {}", built, expected);
}

StepResult Learner::train(const StepInputs& inputs, const data::Batch& batch,
                          const std::function<void()>& before_update) {
  const StepResult result = compute_gradients(inputs, batch);
  check_finite(inputs.step, result.loss.loss, result.grad_norm);

  const double limit = config_.train.max_grad_norm;
  const double grad_scale = limit > 0 && result.grad_norm > limit ? limit / result.grad_norm : 1;
  if (before_update) before_update();
  optimizer_.update(ops(), {.step = inputs.step,
                            .lr = inputs.lr,
                            .grad_scale = grad_scale,
                            .tokens = config_.train.global_batch_size * config_.model.seq_len});
  store_.publish_values();
  return result;
}

StepResult Learner::compute_gradients(const StepInputs& inputs, const data::Batch& batch) {
  StepResult result;
  result.loss = run_micro_batches(inputs.step, batch);
  result.grad_norm = grad_norm(store_, ops(), context_.world());
  result.routing = sum_of_routing();
  return result;
}

LossSum Learner::run_micro_batches(int64_t step, const data::Batch& batch) {
  LossSum sum{.loss = 0, .num_targets = batch.num_valid_targets};
  all_reduce_integers(context_.group(Group::dp), *backend_.device, std::span(&sum.num_targets, 1));

  const model::StepBatches batches = {.micro_batches = micro_batches(batch, batch.num_sequences),
                                      .step = step,
                                      .grad_scale = 1.0 / static_cast<double>(std::max<int64_t>(1, sum.num_targets)),
                                      .step_sequences = config_.train.global_batch_size};
  const PipelinePlan::Training& plan = context_.pipeline().training(std::ssize(batches.micro_batches));
  const auto pp_rank = static_cast<size_t>(context_.group(Group::pp).rank());
  sum.loss = sum_of_losses(pipeline_.train(ops(), plan.schedule, plan.prediction.peak_live[pp_rank], batches));
  return sum;
}

LossSum Learner::evaluate(const data::Batch& batch, int64_t most_sequences) {
  LossSum sum{.loss = 0, .num_targets = batch.num_valid_targets};
  // Every rank makes the same number of passes: under ZeRO-3 they gather parameters together.
  const model::StepBatches batches = {.micro_batches = micro_batches(batch, most_sequences)};
  const parallel::Schedule& schedule = context_.pipeline().evaluation(std::ssize(batches.micro_batches));
  sum.loss = sum_of_losses(pipeline_.evaluate(ops(), schedule, batches));
  all_reduce_integers(context_.group(Group::dp), *backend_.device, std::span(&sum.num_targets, 1));
  return sum;
}

/// Over data-parallel ranks first, as one rank's pipeline adds them; then over the parts of sequences. The other stages
/// contribute 0.
double Learner::sum_of_losses(double of_last_stage) {
  double loss = of_last_stage;
  for (const Group group : {Group::dp, Group::sp, Group::pp}) {
    loss = all_reduce_scalar(context_.group(group), *backend_.device, loss, parallel::Reduction::sum);
  }
  return loss;
}

std::optional<model::RoutingStatistics::Summary> Learner::sum_of_routing() {
  if (config_.model.num_moe_layers() == 0) return std::nullopt;
  model::RoutingStatistics statistics = pipeline_.routing_statistics();
  all_reduce_sums(context_.world(), *backend_.device, statistics.sums());
  return statistics.summary();
}

Bubble Learner::measure_bubble() {
  parallel::Communicator& pp = context_.group(Group::pp);
  const model::WalkTimes& own = pipeline_.last_walk();
  const double busy = all_reduce_scalar(pp, *backend_.device, own.busy, parallel::Reduction::sum);
  const double span = all_reduce_scalar(pp, *backend_.device, own.span, parallel::Reduction::max);
  const double total = span * pp.size();
  return {.idle_over_ideal = (total - busy) / busy, .idle_over_total = (total - busy) / total};
}

std::vector<StateFragment> Learner::gradients() const {
  std::vector<StateFragment> fragments;
  for (const parallel::Parameter* parameter : store_.parameters()) {
    if (parameter->spec().update == parallel::Update::balance) continue;  // counts, which would dwarf gradients
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

std::vector<HostBatch> Learner::micro_batches(const data::Batch& batch, int64_t most_sequences) const {
  const int64_t first = context_.data_rank() * batch.num_sequences;
  const int64_t size =
      config_.train.micro_batch_size > 0 ? config_.train.micro_batch_size : std::max<int64_t>(1, most_sequences);
  std::vector<HostBatch> batches;
  for (int64_t begin = 0; begin < most_sequences; begin += size) {
    const int64_t end = begin + size;
    batches.push_back(slice(batch, std::min(batch.num_sequences, begin), std::min(batch.num_sequences, end), first));
  }
  return batches;
}

}  // namespace trainer
