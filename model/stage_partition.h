#pragma once
/// Which layers each pipeline stage has.

#include <cstdint>
#include <vector>

#include "model/stage.h"

namespace model {

/// Cost of a training pass per token, in FLOPs, of the parts of a model in order. The embedding and the head count as
/// layers of their own: the head's product with the vocabulary often costs more than a layer.
struct PartCosts {
  double embedding = 0;
  std::vector<double> layers;
  double head = 0;
};
PartCosts part_costs(const ModelConfig& config);

/// Contiguous spans that cover the model, such that the most costly stage costs as little as can be, and the others are
/// near their mean. Any number of layers fits any number of stages: some may then be empty.
std::vector<StageSpan> partition_layers(const PartCosts& costs, int num_stages);

/// Spans of these many layers each, which add up to the model's.
std::vector<StageSpan> spans_of(const std::vector<int64_t>& layers_per_stage);

/// Of the passes of a stage, per token: what schedules are weighed by.
double span_cost(const PartCosts& costs, const StageSpan& span);

}  // namespace model
