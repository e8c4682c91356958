#include "model/stage_partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "model/flops.h"
#include "tests/model/model_configs.h"

namespace tests {

using model::PartCosts;
using model::StageSpan;

namespace {

PartCosts uniform(int64_t num_layers, double embedding = 0, double head = 0) {
  return {.embedding = embedding, .layers = std::vector<double>(static_cast<size_t>(num_layers), 1.0), .head = head};
}

std::vector<int64_t> layers_of(const std::vector<StageSpan>& spans) {
  std::vector<int64_t> counts;
  for (const StageSpan& span : spans) counts.push_back(span.num_layers());
  return counts;
}

double most(const PartCosts& costs, const std::vector<StageSpan>& spans) {
  double most = 0;
  for (const StageSpan& span : spans) most = std::max(most, span_cost(costs, span));
  return most;
}

/// Of every way to share out the layers.
double least_of_all_ways(const PartCosts& costs, int64_t layers_left, std::vector<int64_t>& counts, size_t num_stages) {
  if (counts.size() + 1 == num_stages) {
    counts.push_back(layers_left);
    const double cost = most(costs, model::spans_of(counts));
    counts.pop_back();
    return cost;
  }
  double least = 1e300;
  for (int64_t count = 0; count <= layers_left; ++count) {
    counts.push_back(count);
    least = std::min(least, least_of_all_ways(costs, layers_left - count, counts, num_stages));
    counts.pop_back();
  }
  return least;
}

void expect_cover(const std::vector<StageSpan>& spans, int64_t num_layers) {
  int64_t next = 0;
  for (const StageSpan& span : spans) {
    EXPECT_EQ(span.first_layer, next);
    EXPECT_GE(span.last_layer, span.first_layer);
    EXPECT_EQ(span.has_embedding, &span == &spans.front());
    EXPECT_EQ(span.has_head, &span == &spans.back());
    next = span.last_layer;
  }
  EXPECT_EQ(next, num_layers);
}

}  // namespace

TEST(StagePartition, SharesEqualLayersOutEvenly) {
  EXPECT_EQ(layers_of(partition_layers(uniform(8), 4)), (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(layers_of(partition_layers(uniform(8), 1)), (std::vector<int64_t>{8}));
  const auto seven = layers_of(partition_layers(uniform(7), 3));
  EXPECT_EQ(*std::max_element(seven.begin(), seven.end()), 3);
  EXPECT_EQ(*std::min_element(seven.begin(), seven.end()), 2);
}

TEST(StagePartition, LeavesStagesEmptyWhereLayersAreFew) {
  const auto spans = partition_layers(uniform(3), 4);

  expect_cover(spans, 3);
  EXPECT_EQ(most(uniform(3), spans), 1);
}

TEST(StagePartition, GivesTheStageOfACostlyHeadFewerLayers) {
  EXPECT_EQ(layers_of(partition_layers(uniform(10, 0, 2), 4)), (std::vector<int64_t>{3, 3, 3, 1}));
  EXPECT_EQ(layers_of(partition_layers(uniform(4, 0, 9), 2)), (std::vector<int64_t>{4, 0}));
}

TEST(StagePartition, MakesTheMostCostlyStageAsCheapAsAnyWayCan) {
  for (int64_t num_layers = 1; num_layers <= 7; ++num_layers) {
    for (int num_stages = 1; num_stages <= 5; ++num_stages) {
      for (const double head : {0.0, 0.7, 2.5, 8.0}) {
        PartCosts costs = uniform(num_layers, 0.3, head);
        for (size_t i = 0; i < costs.layers.size(); i += 3) costs.layers[i] = 1.9;  // unequal layers
        const auto spans = partition_layers(costs, num_stages);
        std::vector<int64_t> counts;
        const double least = least_of_all_ways(costs, num_layers, counts, static_cast<size_t>(num_stages));

        expect_cover(spans, num_layers);
        EXPECT_NEAR(most(costs, spans), least, 1e-6) << num_layers << " layers, " << num_stages << " stages, " << head;
      }
    }
  }
}

TEST(StagePartition, CountsTheFlopsOfTheModel) {
  const model::ModelConfig config = gpt2_config();
  const PartCosts costs = model::part_costs(config);

  const double layers = std::accumulate(costs.layers.begin(), costs.layers.end(), 0.0);
  EXPECT_NEAR(layers + costs.head, model::flops_per_token(config).causal, 1);
}

TEST(StagePartition, HandlesThousandsOfLayers) {
  const auto spans = partition_layers(uniform(10'000, 1, 3), 512);

  expect_cover(spans, 10'000);
  EXPECT_EQ(most(uniform(10'000, 1, 3), spans), 20);
}

}  // namespace tests
