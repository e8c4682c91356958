#include "model/routing_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace model {

namespace {

constexpr int64_t kScalars = 3;  // dropped, aux_loss, z_loss

int64_t sums_per_layer(int64_t num_experts) { return 2 * num_experts + kScalars; }

/// -sum p log p / log n of the shares p of `counts`; 1 where there is nothing to share.
double entropy_of(const double* counts, int64_t n) {
  const double sum = std::accumulate(counts, counts + n, 0.0);
  if (n == 1 || sum == 0) return 1;
  double entropy = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double share = counts[i] / sum;
    if (share > 0) entropy -= share * std::log(share);
  }
  return entropy / std::log(static_cast<double>(n));
}

}  // namespace

RoutingStatistics::RoutingStatistics(const ModelConfig& config) : num_experts_(config.moe.num_experts) {
  int64_t num_layers = 0;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    place_.push_back(config.has_experts(layer) ? num_layers++ : -1);
  }
  sums_.assign(static_cast<size_t>(num_layers * sums_per_layer(num_experts_)), 0.0);
}

RoutingStatistics::Layer RoutingStatistics::layer(int64_t layer) {
  const int64_t place = place_.at(static_cast<size_t>(layer));
  CHECK(place >= 0, "layer {} has experts", layer);
  double* const begin = sums_.data() + place * sums_per_layer(num_experts_);
  double* const scalars = begin + 2 * num_experts_;
  return {begin, begin + num_experts_, scalars[0], scalars[1], scalars[2]};
}

void RoutingStatistics::clear() { std::ranges::fill(sums_, 0.0); }

RoutingStatistics::Summary RoutingStatistics::summary() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Summary s{.tokens_min = kInfinity, .bias_min = kInfinity, .bias_max = -kInfinity};
  double num_layers = 0, choices = 0;
  for (size_t i = 0; i < place_.size(); ++i) {
    if (place_[i] < 0) continue;
    const Layer one = layer(static_cast<int64_t>(i));
    const auto [least, most] = std::minmax_element(one.tokens, one.tokens + num_experts_);
    const auto [lowest, highest] = std::minmax_element(one.bias, one.bias + num_experts_);
    s.tokens_min = std::min(s.tokens_min, *least);
    s.tokens_max = std::max(s.tokens_max, *most);
    s.bias_min = std::min(s.bias_min, *lowest);
    s.bias_max = std::max(s.bias_max, *highest);
    s.entropy += entropy_of(one.tokens, num_experts_);
    s.dropped_fraction += one.dropped;
    s.aux_loss += one.aux_loss;
    s.z_loss += one.z_loss;
    choices += std::accumulate(one.tokens, one.tokens + num_experts_, 0.0);
    num_layers += 1;
  }
  if (num_layers == 0) return {};
  s.tokens_mean = choices / (num_layers * static_cast<double>(num_experts_));
  s.entropy /= num_layers;
  s.dropped_fraction /= std::max(1.0, choices);
  return s;
}

}  // namespace model
