#include "trainer/verify.h"

#include <cmath>

#include "parallel/communicator_factory.h"
#include "trainer/logical_state.h"
#include "trainer/lr_schedule.h"
#include "trainer/scalars.h"

namespace trainer {

using tensor::Tensor;

namespace {

template <class T>
std::vector<double> download_as(const Tensor& x) {
  std::vector<T> values(static_cast<size_t>(x.numel()));
  x.device().copy_to_host(x, values.data());
  return {values.begin(), values.end()};
}

std::vector<double> download(const Tensor& x) {
  return x.dtype() == tensor::Dtype::fp64 ? download_as<double>(x) : download_as<float>(x);
}

NamedValues collect(Learner& learner, std::vector<StateFragment> fragments) {
  LogicalState logical(std::move(fragments), learner.parameters(), learner.context().world(), learner.ops().device());
  logical.gather();
  NamedValues tensors;
  for (const checkpoint::NamedTensor& named : logical.tensors()) {
    const std::string name = named.name.substr(named.name.find('/') + 1);
    if (!named.name.starts_with("exp_avg")) tensors[name] = download(*named.tensor);
  }
  return tensors;
}

Trace run(const Config& config, tensor::Backend& backend, const RankContext& context, const SampleSource& source,
          int64_t num_steps) {
  Learner learner(config, backend, context);
  learner.check_parameter_count();
  const LrSchedule schedule(config.lr_schedule, {.peak_lr = config.optimizer.lr, .steps = config.train.steps});
  const int64_t per_rank = config.train.global_batch_size / context.num_data_ranks();
  const int64_t begin = context.data_rank() * per_rank;
  Trace trace;
  for (int64_t step = 1; step <= num_steps; ++step) {
    const data::Batch batch = source.read(step, begin, begin + per_rank);
    trace.steps.push_back(learner.train({.step = step, .lr = schedule.at(step)}, batch));
    if (step == 1) trace.gradients = collect(learner, learner.gradients());
  }
  trace.weights = collect(learner, learner.state());
  return trace;
}

/// The same run on one rank: everything that splits is neutral, whatever micro-batch the config has.
Trace run_on_one_rank(Config config, tensor::Backend& backend, const SampleSource& source, int64_t num_steps) {
  config.parallel = {};
  const OneRank alone(config);
  return run(config, backend, alone.context, source, num_steps);
}

}  // namespace

std::vector<WorstDifference> verify(const Config& config, tensor::Backend& backend, const RankContext& context,
                                    const SampleSource& source, const VerifyOptions& options) {
  const Trace ours = run(config, backend, context, source, options.steps);
  std::vector<WorstDifference> differences;
  if (context.world().rank() == 0) {
    differences = compare(ours, run_on_one_rank(config, backend, source, options.steps), options);
  }
  double failures = 0;
  for (const WorstDifference& difference : differences) failures += difference.passes() ? 0 : 1;
  failures = all_reduce_scalar(context.world(), *backend.device, failures, parallel::Reduction::sum);
  if (context.world().rank() != 0 && failures > 0) {
    differences.push_back({.kind = "of rank 0", .where = {}, .difference = INFINITY, .tolerance = 0});
  }
  return differences;
}

}  // namespace trainer
