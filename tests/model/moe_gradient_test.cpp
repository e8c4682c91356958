/// Gradients of models with experts: finite differences, and what must not change them.

#include "tests/model/moe_models.h"
#include "tests/model/test_model.h"

namespace tests {

using model::Balance;
using model::ModelConfig;
using model::Recompute;
using model::RoutingStatistics;
using tensor::Dtype;

namespace {

/// A model, and the losses of its routers.
struct MoeModel {
  explicit MoeModel(const ModelConfig& config, Recompute recompute = Recompute::none)
      : statistics(config),
        model(config, Dtype::fp64, {.recompute = recompute, .seed = 5, .statistics = &statistics}, 1) {}

  double router_losses() {
    const RoutingStatistics::Summary summary = statistics.summary();
    return summary.aux_loss + summary.z_loss;
  }

  RoutingStatistics statistics;
  TestModel model;
};

/// What gradients are those of.
double objective(MoeModel& moe, const model::HostBatch& host) {
  moe.statistics.clear();
  model::Stage::Saved saved;
  moe.model.stage.forward(moe.model.ops, moe.model.upload(host), {}, saved);
  return saved.loss / num_valid_targets(host) + moe.router_losses();
}

double finite_difference(MoeModel& moe, const model::HostBatch& host, double& element) {
  constexpr double kStep = 1e-5;  // small: a choice must not change on the way
  const double original = element;
  const auto difference = [&](double step) {
    element = original + step;
    const double above = objective(moe, host);
    element = original - step;
    const double below = objective(moe, host);
    element = original;
    return above - below;
  };
  return (8 * difference(kStep) - difference(2 * kStep)) / (12 * kStep);
}

void expect_gradients_match_finite_differences(const ModelConfig& config) {
  MoeModel moe(config);
  const model::HostBatch host = random_batch(config, 2, 1);
  moe.model.step_sequences = 2;
  Gradients expected;
  for (parallel::Parameter* parameter : moe.model.store.parameters()) {
    if (parameter->name().find(".mlp") == std::string::npos || parameter->name().ends_with("router.bias")) continue;
    tensor::Tensor value = parameter->value();
    double* const elements = value.data<double>();
    for (int64_t i = 0; i < value.numel(); ++i) {
      expected[parameter->name()].push_back(finite_difference(moe, host, elements[i]));
    }
  }
  moe.model.run_step({host});

  Gradients computed = moe.model.gradients();
  std::erase_if(computed, [&](const auto& named) { return !expected.contains(named.first); });
  const WorstGradient worst = worst_gradient(computed, expected);
  EXPECT_LE(worst.error, 1e-6) << worst.name;
}

/// Gradients of four sequences in micro-batches of `size`.
Gradients in_micro_batches(const ModelConfig& config, int64_t size, Recompute recompute = Recompute::none) {
  MoeModel moe(config, recompute);
  moe.model.step_sequences = 4;
  const model::HostBatch all = random_batch(config, 4, 1);
  std::vector<model::HostBatch> parts;
  for (int64_t first = 0; first < 4; first += size) parts.push_back(sequences_of(all, first, size));
  moe.model.run_step(parts);
  return moe.model.gradients();
}

std::vector<ModelConfig> all_kinds() { return {softmax_moe(), sigmoid_moe(), dropping_moe(), dense_moe()}; }

}  // namespace

TEST(MoeGradients, MatchFiniteDifferencesWithSoftmaxAndBothLosses) {
  expect_gradients_match_finite_differences(softmax_moe());
}
TEST(MoeGradients, MatchFiniteDifferencesWithSigmoidGroupsAndASharedExpert) {
  expect_gradients_match_finite_differences(sigmoid_moe());
}
TEST(MoeGradients, MatchFiniteDifferencesWithCapacity) { expect_gradients_match_finite_differences(dropping_moe()); }
TEST(MoeGradients, MatchFiniteDifferencesWhereEveryTokenTakesEveryExpert) {
  expect_gradients_match_finite_differences(dense_moe());
}

TEST(MoeGradients, AreTheSameForEveryMicroBatchSize) {
  for (const ModelConfig& config : all_kinds()) {
    const Gradients whole = in_micro_batches(config, 4);
    for (const int64_t size : {1, 2}) {
      const WorstGradient worst = worst_gradient(in_micro_batches(config, size), whole);
      EXPECT_LE(worst.error, 1e-12) << worst.name;
    }
  }
}

TEST(MoeGradients, AreBitwiseTheSameUnderRecompute) {
  for (const ModelConfig& config : all_kinds()) {
    const Gradients kept = in_micro_batches(config, 2);
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
      EXPECT_EQ(in_micro_batches(config, 2, recompute), kept);
    }
  }
}

TEST(MoeGradients, OfExpertsWithoutTokensAreZero) {
  ModelConfig config = softmax_moe();
  config.moe.balance = Balance::bias;
  MoeModel moe(config);
  tensor::Tensor bias = moe.model.store.at("layers.0.mlp.router.bias").value();
  fill(bias, {0, 0, -100, 0, 0});

  moe.model.run_step({random_batch(config, 2, 1), random_batch(config, 2, 2)});

  const Gradients gradients = moe.model.gradients();
  for (const char* matrix : {"gate.weight", "up.weight", "down.weight", "down.bias"}) {
    const Values& zero = gradients.at(fmt::format("layers.0.mlp.experts.2.{}", matrix));
    EXPECT_EQ(zero, Values(zero.size(), 0.0));
  }
  EXPECT_EQ(gradients.at("layers.0.mlp.router.bias")[2], 0);
}

TEST(RouterBias, CountsEveryChoiceOfAStep) {
  const ModelConfig config = sigmoid_moe();
  const Gradients gradients = in_micro_batches(config, 1, Recompute::full);

  double sum = 0;
  for (const double count : gradients.at("layers.1.mlp.router.bias")) sum += count;
  EXPECT_EQ(sum, static_cast<double>(4 * config.seq_len * config.moe.top_k));
  EXPECT_FALSE(gradients.contains("layers.0.mlp.router.bias"));
}

TEST(RoutingStatistics, SumUpWhatRoutersDid) {
  const ModelConfig config = dropping_moe();
  MoeModel moe(config);
  moe.model.step_sequences = 2;

  moe.model.run_step({random_batch(config, 2, 1)});

  const RoutingStatistics::Summary summary = moe.statistics.summary();
  const double mean = 2.0 * static_cast<double>(config.seq_len * config.moe.top_k) / 5;
  EXPECT_DOUBLE_EQ(summary.tokens_mean, mean);
  EXPECT_LE(summary.tokens_min, mean);
  EXPECT_GE(summary.tokens_max, mean);
  EXPECT_GT(summary.entropy, 0.5);
  EXPECT_LE(summary.entropy, 1);
  EXPECT_GT(summary.dropped_fraction, 0);
  EXPECT_GT(summary.aux_loss, 0);
  EXPECT_GT(summary.z_loss, 0);
}

TEST(MoeModel, DecodesWhatItComputesAtOnce) {
  for (const ModelConfig& config : all_kinds()) {
    MoeModel moe(config);
    const model::HostBatch host = random_batch(config, 1, 3);
    const Values whole = moe.model.logits(host);
    model::KvCache cache = moe.model.stage.make_cache(config.seq_len, Dtype::fp64, *moe.model.backend.device);
    for (int64_t t = 0; t < config.seq_len; ++t) {
      const Values one =
          values_of(moe.model.stage.decode(moe.model.ops, moe.model.upload(tokens_of(host, t, t + 1)), {}, cache));
      const auto expected = whole.begin() + t * config.vocab_size;
      EXPECT_LE(relative_error(one, Values(expected, expected + config.vocab_size)), 1e-12) << t;
    }
  }
}

TEST(MoeLayers, AreNamedByAWord) {
  ModelConfig config = softmax_moe();
  const auto layers_of = [&](const char* text) {
    config.moe.layers = text;
    std::vector<int64_t> layers;
    for (int64_t layer = 0; layer < 5; ++layer) {
      if (config.has_experts(layer)) layers.push_back(layer);
    }
    return layers;
  };

  EXPECT_EQ(layers_of("all"), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(layers_of("every:2"), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(layers_of("after:3"), (std::vector<int64_t>{3, 4}));
  for (const char* text : {"", "every", "every:", "every:0", "every:x", "after:-1", "every:2 ", "some"}) {
    EXPECT_FALSE(model::parse_moe_layers(text)) << text;
  }
}

}  // namespace tests
