/// Gradients against finite differences in fp64, dropout included: its mask is a function, so it differentiates.

#include <cmath>

#include "tests/model/model_configs.h"
#include "tests/model/test_model.h"

namespace tests {

using tensor::Activation;
using tensor::Dtype;

namespace {

/// Mean token loss in training, with dropout.
double training_loss(TestModel& model, const model::HostBatch& host) {
  model::Stage::Saved saved;
  const model::MicroBatch batch = model.upload(host);
  model.stage.forward(model.ops, batch, {}, saved);
  return saved.loss / num_valid_targets(host);
}

/// d training_loss / d element, by the central formula of fourth order.
double finite_difference(TestModel& model, const model::HostBatch& host, double& element) {
  constexpr double kStep = 1e-4;  // error of the formula ~ step^4, of rounding ~ 2^-53 / step
  const double original = element;
  const auto difference = [&](double step) {
    element = original + step;
    const double above = training_loss(model, host);
    element = original - step;
    const double below = training_loss(model, host);
    element = original;
    return above - below;
  };
  return (8 * difference(kStep) - difference(2 * kStep)) / (12 * kStep);
}

Gradients finite_differences(TestModel& model, const model::HostBatch& host) {
  Gradients gradients;
  for (parallel::Parameter* parameter : model.store.parameters()) {
    tensor::Tensor value = parameter->value();
    double* const elements = value.data<double>();
    for (int64_t i = 0; i < value.numel(); ++i) {
      gradients[parameter->name()].push_back(finite_difference(model, host, elements[i]));
    }
  }
  return gradients;
}

void expect_gradients_match_finite_differences(const model::ModelConfig& config) {
  TestModel model(config, Dtype::fp64, {.seed = 5}, 1);
  model::HostBatch host = random_batch(config, 2, 1);
  for (size_t i = 3; i < 7; ++i) host.document_start[i] = 3;  // the first sequence holds two documents

  const Gradients expected = finite_differences(model, host);
  model.run_step({host});

  const WorstGradient worst = worst_gradient(model.gradients(), expected);
  EXPECT_LE(worst.error, 1e-7) << worst.name;
}

}  // namespace

TEST(Gradients, MatchFiniteDifferencesInTheKitchenSink) {
  model::ModelConfig config = tiny_config();
  config.dropout = 0.25;
  expect_gradients_match_finite_differences(config);
}

TEST(Gradients, MatchFiniteDifferencesWithLayerNormAndLearnedPositions) {
  model::ModelConfig config = tiny_config();
  config.norm = tensor::NormKind::layer_norm;
  config.position = model::Position::learned;
  config.activation = Activation::gelu_erf;
  config.qk_norm = false;
  config.num_kv_heads = 2;
  config.dropout = 0.25;
  expect_gradients_match_finite_differences(config);
}

TEST(Gradients, MatchFiniteDifferencesWithoutPositionsBiasesAndTying) {
  model::ModelConfig config = tiny_config();
  config.position = model::Position::none;
  config.activation = Activation::relu_squared;
  config.bias = false;
  config.tie_embeddings = false;
  config.sliding_window = 0;
  expect_gradients_match_finite_differences(config);
}

TEST(Gradients, OfAnEarlierStepAreForgotten) {
  const model::HostBatch first = random_batch(tiny_config(), 2, 1), second = random_batch(tiny_config(), 2, 2);
  TestModel model(tiny_config(), Dtype::fp32), fresh(tiny_config(), Dtype::fp32);

  model.run_step({first});
  model.run_step({second});
  fresh.run_step({second});

  EXPECT_EQ(model.gradients(), fresh.gradients());
}

TEST(Gradients, ThatNothingWroteBecomeZero) {
  TestModel model(tiny_config(), Dtype::fp32);
  for (parallel::Parameter* parameter : model.store.parameters()) {
    tensor::Tensor grad = parameter->grad();
    fill(grad, Values(static_cast<size_t>(grad.numel()), NAN));
  }

  model.store.begin_step();
  for (const auto& unit : model.store.units()) model.store.reduce_gradients(*unit);
  model.store.finish_gradients();

  for (const auto& [name, gradient] : model.gradients()) EXPECT_EQ(gradient, Values(gradient.size(), 0.0)) << name;
}

TEST(Gradients, OfTokensThatDoNotOccurAreZero) {
  model::ModelConfig config = tiny_config();
  config.tie_embeddings = false;
  TestModel model(config, Dtype::fp32);
  model::HostBatch host = random_batch(config, 2, 1);
  for (int32_t& token : host.tokens) token = token == 4 ? 5 : token;

  model.run_step({host});

  const Values gradient = values_of(model.store.at("embedding.token.weight").grad().rows(4, 5));
  EXPECT_EQ(gradient, Values(gradient.size(), 0.0));
}

TEST(Gradients, AreZeroWhereNoTargetIsValid) {
  TestModel model(tiny_config(), Dtype::fp32);
  model::HostBatch host = random_batch(tiny_config(), 2, 1);
  host.targets.assign(host.targets.size(), -1);
  const model::MicroBatch batch = model.upload(host);
  model::Stage::Saved saved;

  model.stage.forward(model.ops, batch, {}, saved);
  model.stage.backward(model.ops, batch, {}, saved, model::Reduce::later);

  EXPECT_EQ(saved.loss, 0);
  for (const auto& [name, gradient] : model.gradients()) EXPECT_EQ(gradient, Values(gradient.size(), 0.0)) << name;
}

}  // namespace tests
