#include "trainer/verify.h"

#include <algorithm>
#include <cmath>

#include "parallel/communicator_factory.h"
#include "trainer/logical_state.h"
#include "trainer/lr_schedule.h"
#include "trainer/scalars.h"

namespace trainer {

using tensor::Tensor;

namespace {

/// What one run of the config leaves to compare. Tensors by logical name, on rank 0.
struct Trace {
  std::vector<StepResult> steps;
  std::map<std::string, std::vector<double>> gradients;  // of the first step
  std::map<std::string, std::vector<double>> weights;    // after the last
};

template <class T>
std::vector<double> download_as(const Tensor& x) {
  std::vector<T> values(static_cast<size_t>(x.numel()));
  x.device().copy_to_host(x, values.data());
  return {values.begin(), values.end()};
}

std::vector<double> download(const Tensor& x) {
  return x.dtype() == tensor::Dtype::fp64 ? download_as<double>(x) : download_as<float>(x);
}

std::map<std::string, std::vector<double>> collect(Learner& learner, std::vector<StateFragment> fragments) {
  LogicalState logical(std::move(fragments), learner.parameters(), learner.context().world());
  logical.gather();
  std::map<std::string, std::vector<double>> tensors;
  for (const checkpoint::NamedTensor& named : logical.tensors()) {
    const std::string name = named.name.substr(named.name.find('/') + 1);
    if (!named.name.starts_with("exp_avg")) tensors[name] = download(*named.tensor);
  }
  return tensors;
}

Trace run(const Config& config, tensor::Backend& backend, const RankContext& context, const SampleSource& source,
          int64_t num_steps) {
  Learner learner(config, backend, context);
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

double relative(double a, double b) {
  if (a == b) return 0;
  return std::abs(a - b) / std::max(std::abs(a), std::abs(b));
}

/// Keeps the larger difference; a NaN stays.
void keep_worst(WorstDifference& worst, const std::string& where, double difference) {
  if (std::isnan(worst.difference) || !(difference > worst.difference || std::isnan(difference))) return;
  worst.where = where;
  worst.difference = difference;
}

/// Largest |a - b| over the norm of b.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0, sum = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (difference > largest || std::isnan(difference)) largest = difference;
    if (std::isnan(largest)) return largest;
    sum += b[i] * b[i];
  }
  return largest == 0 ? 0 : largest / std::sqrt(sum);
}

using Tensors = std::map<std::string, std::vector<double>>;

WorstDifference compare_tensors(const std::string& kind, const Tensors& ours, const Tensors& reference,
                                double tolerance) {
  WorstDifference worst{.kind = kind, .where = {}, .difference = 0, .tolerance = tolerance};
  for (const auto& [name, values] : reference) {
    const auto found = ours.find(name);
    const bool fits = found != ours.end() && found->second.size() == values.size();
    keep_worst(worst, name, fits ? largest_difference(found->second, values) : INFINITY);
  }
  return worst;
}

std::vector<WorstDifference> compare(const Trace& ours, const Trace& reference, const VerifyOptions& options) {
  WorstDifference loss{.kind = "loss", .where = {}, .difference = 0, .tolerance = options.scalar_tolerance};
  WorstDifference norm{.kind = "grad_norm", .where = {}, .difference = 0, .tolerance = options.scalar_tolerance};
  for (size_t i = 0; i < reference.steps.size(); ++i) {
    const std::string where = fmt::format("step {}", i + 1);
    keep_worst(loss, where, relative(ours.steps[i].loss.mean(), reference.steps[i].loss.mean()));
    keep_worst(norm, where, relative(ours.steps[i].grad_norm, reference.steps[i].grad_norm));
  }
  return {loss, norm, compare_tensors("gradient", ours.gradients, reference.gradients, options.tensor_tolerance),
          compare_tensors("weight", ours.weights, reference.weights, options.tensor_tolerance)};
}

}  // namespace

VerifyOptions default_verify_options(tensor::Dtype dtype) {
  if (dtype == tensor::Dtype::fp64) return {};
  return {.scalar_tolerance = 1e-5, .tensor_tolerance = 1e-5};
}

std::vector<WorstDifference> verify(const Config& config, tensor::Backend& backend, const RankContext& context,
                                    const SampleSource& source, const VerifyOptions& options) {
  const Trace ours = run(config, backend, context, source, options.steps);
  std::vector<WorstDifference> differences(4);
  if (context.world().rank() == 0) {
    differences = compare(ours, run_on_one_rank(config, backend, source, options.steps), options);
  }
  // The other ranks learn whether it passed: 0, or the number of kinds that failed.
  double failures = 0;
  for (const WorstDifference& difference : differences) failures += difference.passes() ? 0 : 1;
  failures = all_reduce_scalar(context.world(), *backend.device, failures, parallel::Reduction::sum);
  if (context.world().rank() != 0 && failures > 0) differences.front().difference = INFINITY;
  return differences;
}

std::string format(const std::vector<WorstDifference>& differences) {
  std::string text = fmt::format("{:<10} {:>12} {:>12}         worst at\n", "", "difference", "tolerance");
  for (const WorstDifference& d : differences) {
    text += fmt::format("{:<10} {:>12.3e} {:>12.1e}  {:<6} {}\n", d.kind, d.difference, d.tolerance,
                        d.passes() ? "ok" : "FAILED", d.where);
  }
  return text;
}

}  // namespace trainer
