#include "model/stage_partition.h"

#include <algorithm>
#include <numeric>

#include "model/flops.h"

namespace model {

namespace {

/// The parts in one row: embedding, layers, head.
std::vector<double> row_of(const PartCosts& costs) {
  std::vector<double> row = {costs.embedding};
  row.insert(row.end(), costs.layers.begin(), costs.layers.end());
  row.push_back(costs.head);
  return row;
}

/// Stages that parts [i, end) need at least, for every i, when none may cost more than `most`.
std::vector<int64_t> stages_needed(const std::vector<double>& row, double most) {
  const auto num_parts = std::ssize(row);
  std::vector<int64_t> needed(row.size() + 1, 0);
  double sum = 0;
  int64_t end = num_parts;  // of the stage that begins at i
  for (int64_t i = num_parts - 1; i >= 0; --i) {
    sum += row[static_cast<size_t>(i)];
    while (sum > most && end > i + 1) sum -= row[static_cast<size_t>(--end)];
    needed[static_cast<size_t>(i)] = 1 + needed[static_cast<size_t>(end)];
  }
  return needed;
}

/// The least that the most costly of so many stages can cost.
double least_maximum(const std::vector<double>& row, int num_stages) {
  double low = *std::max_element(row.begin(), row.end());
  double high = std::accumulate(row.begin(), row.end(), 0.0);
  constexpr int kHalvings = 60;  // as many as a double has bits, and some
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    const bool fits = stages_needed(row, middle).front() <= num_stages;
    (fits ? high : low) = middle;
  }
  return high;
}

}  // namespace

PartCosts part_costs(const ModelConfig& config) {
  constexpr double kPerWeight = 6;  // forward, and both gradients
  const double head = kPerWeight * static_cast<double>(config.vocab_size * config.hidden_size);
  PartCosts costs{.embedding = kPerWeight * static_cast<double>(config.hidden_size), .layers = {}, .head = head};
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    costs.layers.push_back(layer_flops_per_token(config, layer));
  }
  return costs;
}

std::vector<StageSpan> partition_layers(const PartCosts& costs, int num_stages) {
  const std::vector<double> row = row_of(costs);
  const double slack = 1e-9 * std::accumulate(row.begin(), row.end(), 0.0);
  const double most = least_maximum(row, num_stages) + slack;
  const std::vector<int64_t> needed = stages_needed(row, most);
  const auto num_layers = std::ssize(costs.layers);

  double left = std::accumulate(row.begin(), row.end(), 0.0);
  std::vector<int64_t> layers_per_stage;
  int64_t next = 0;  // layer
  for (int stage = 0; stage + 1 < num_stages; ++stage) {
    const int stages_after = num_stages - stage - 1;
    const double mean = left / (stages_after + 1);
    double cost = stage == 0 ? costs.embedding : 0;
    const int64_t first = next;
    while (next < num_layers) {
      const double layer = costs.layers[static_cast<size_t>(next)];
      const bool must = needed[static_cast<size_t>(next + 1)] > stages_after;  // the rest would not fit
      const bool is_nearer = cost + layer / 2 <= mean + slack && cost + layer <= most;
      if (!must && !is_nearer) break;
      cost += layer;
      ++next;
    }
    layers_per_stage.push_back(next - first);
    left -= cost;
  }
  layers_per_stage.push_back(num_layers - next);
  return spans_of(layers_per_stage);
}

std::vector<StageSpan> spans_of(const std::vector<int64_t>& layers_per_stage) {
  std::vector<StageSpan> spans;
  int64_t first = 0;
  for (const int64_t count : layers_per_stage) {
    spans.push_back({.first_layer = first, .last_layer = first + count, .has_embedding = false, .has_head = false});
    first += count;
  }
  spans.front().has_embedding = true;
  spans.back().has_head = true;
  return spans;
}

double span_cost(const PartCosts& costs, const StageSpan& span) {
  double cost = (span.has_embedding ? costs.embedding : 0) + (span.has_head ? costs.head : 0);
  for (int64_t layer = span.first_layer; layer < span.last_layer; ++layer) {
    cost += costs.layers[static_cast<size_t>(layer)];
  }
  return cost;
}

}  // namespace model
