#include "trainer/trace.h"

#include <algorithm>
#include <cmath>

namespace trainer {

namespace {

/// What the differences of one tensor's elements are relative to.
struct Scale {
  double usual = 0;
  double where_rounding = 0;                      ///< of elements whose gradient is but rounding
  double rounding = 0;                            ///< the largest such gradient
  const std::vector<double>* gradient = nullptr;  ///< null: all elements are usual

  double at(size_t i) const {
    const bool is_rounding = gradient != nullptr && std::abs((*gradient)[i]) <= rounding;
    return is_rounding ? where_rounding : usual;
  }
};
using Scales = std::map<std::string, Scale>;

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x * x;
  return std::sqrt(sum);
}

double norm(const NamedValues& tensors) {
  double sum = 0;
  for (const auto& [name, values] : tensors) sum += norm(values) * norm(values);
  return std::sqrt(sum);
}

Scales gradient_scales(const NamedValues& gradients, const VerifyOptions& options) {
  const double all = norm(gradients);
  const double least = all > options.rounding_norm ? options.rounding_share * all : 1;
  Scales scales;
  for (const auto& [name, values] : gradients) scales[name] = {.usual = std::max(norm(values), least)};
  return scales;
}

Scales weight_scales(const Trace& reference, double rounding_share) {
  const double rounding = rounding_share * norm(reference.gradients);
  const double all = norm(reference.weights);
  Scales scales;
  for (const auto& [name, values] : reference.weights) {
    const auto found = reference.gradients.find(name);
    const bool has_gradient = found != reference.gradients.end() && found->second.size() == values.size();
    scales[name] = {.usual = norm(values),
                    .where_rounding = all,
                    .rounding = rounding,
                    .gradient = has_gradient ? &found->second : nullptr};
  }
  return scales;
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

double largest_difference(const std::vector<double>& a, const std::vector<double>& b, const Scale& scale) {
  double largest = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    if (a[i] == b[i]) continue;  // 0 relative to 0 as well
    const double difference = std::abs(a[i] - b[i]) / scale.at(i);
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, difference);
  }
  return largest;
}

WorstDifference compare_tensors(WorstDifference worst, const NamedValues& ours, const NamedValues& reference,
                                const Scales& scales) {
  for (const auto& [name, values] : reference) {
    const auto found = ours.find(name);
    const bool fits = found != ours.end() && found->second.size() == values.size();
    keep_worst(worst, name, fits ? largest_difference(found->second, values, scales.at(name)) : INFINITY);
  }
  for (const auto& [name, values] : ours) {
    if (!reference.contains(name)) keep_worst(worst, name, INFINITY);
  }
  return worst;
}

}  // namespace

VerifyOptions default_verify_options(tensor::Dtype dtype) {
  if (dtype == tensor::Dtype::fp64) return {};
  return {.scalar_tolerance = 1e-5, .tensor_tolerance = 1e-5, .rounding_share = 1e-3, .rounding_norm = 1e-6};
}

std::vector<WorstDifference> compare(const Trace& ours, const Trace& reference, const VerifyOptions& options) {
  WorstDifference loss{.kind = "loss", .where = {}, .difference = 0, .tolerance = options.scalar_tolerance};
  WorstDifference grad_norm{.kind = "grad_norm", .where = {}, .difference = 0, .tolerance = options.scalar_tolerance};
  const WorstDifference gradient{
      .kind = "gradient", .where = {}, .difference = 0, .tolerance = options.tensor_tolerance};
  const WorstDifference weight{.kind = "weight", .where = {}, .difference = 0, .tolerance = options.tensor_tolerance};
  CHECK(ours.steps.size() == reference.steps.size(), "{} steps are compared with {}", ours.steps.size(),
        reference.steps.size());
  for (size_t i = 0; i < reference.steps.size(); ++i) {
    const std::string where = fmt::format("step {}", i + 1);
    keep_worst(loss, where, relative(ours.steps[i].loss.mean(), reference.steps[i].loss.mean()));
    const double norm = ours.steps[i].grad_norm, expected = reference.steps[i].grad_norm;
    const bool is_rounding = norm <= options.rounding_norm && expected <= options.rounding_norm;
    keep_worst(grad_norm, where, is_rounding ? 0 : relative(norm, expected));
  }
  return {loss, grad_norm,
          compare_tensors(gradient, ours.gradients, reference.gradients, gradient_scales(reference.gradients, options)),
          compare_tensors(weight, ours.weights, reference.weights, weight_scales(reference, options.rounding_share))};
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
