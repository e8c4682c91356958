/// The model against a float64 reference in PyTorch (scripts/make_model_goldens.py): logits, loss, every gradient.

#include <gmock/gmock.h>

#include "tests/model/model_configs.h"
#include "tests/model/test_model.h"
#include "tests/support/golden_file.h"

namespace tests {

using tensor::Dtype;

namespace {

struct GoldenModel {
  std::string name;
  model::ModelConfig config;
};

void PrintTo(const GoldenModel& golden, std::ostream* out) { *out << golden.name; }

/// Of logits and loss. bf16: weights and some dozen results on the way are rounded by up to 2^-9 each.
double forward_tolerance(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp64:
      return 1e-12;
    case Dtype::fp32:
      return 2e-5;
    default:
      return 4 * epsilon(Dtype::bf16);
  }
}

/// bf16 gradients pass the same roundings again on the way back, multiplied by weights that are not small here.
double gradient_tolerance(Dtype dtype) {
  return dtype == Dtype::bf16 ? 16 * epsilon(Dtype::bf16) : forward_tolerance(dtype);
}

class Golden : public testing::TestWithParam<std::tuple<GoldenModel, Dtype>> {
 protected:
  const GoldenModel& golden() const { return std::get<0>(GetParam()); }
  Dtype dtype() const { return std::get<1>(GetParam()); }

  void SetUp() override {
    for (parallel::Parameter* parameter : model_.store.parameters()) {
      tensor::Tensor value = parameter->value();
      fill(value, file_.doubles("weights/" + parameter->name()));
    }
  }

  model::HostBatch batch() const {
    model::HostBatch host{.num_sequences = 0,
                          .tokens = file_.ints("tokens"),
                          .targets = file_.ints("targets"),
                          .positions = file_.ints("positions"),
                          .document_start = file_.ints("document_start"),
                          .token_index = {}};
    host.num_sequences = std::ssize(host.tokens) / model_.config.seq_len;
    host.token_index.resize(host.tokens.size());
    return host;
  }

  Gradients expected_gradients() const {
    Gradients gradients;
    for (const std::string& name : file_.names("gradients")) gradients[name] = file_.doubles("gradients/" + name);
    return gradients;
  }

  GoldenFile file_{std::string(TRAINER_SOURCE_DIR) + "/tests/model/golden/" + golden().name + ".h5"};
  TestModel model_{golden().config, dtype()};
};

}  // namespace

TEST_P(Golden, HasTheParametersOfTheReference) {
  std::vector<std::string> names;
  for (const parallel::Parameter* parameter : model_.store.parameters()) names.push_back(parameter->name());

  EXPECT_THAT(names, testing::UnorderedElementsAreArray(file_.names("weights")));
}

TEST_P(Golden, GivesTheLogits) {
  const double error = relative_error(model_.logits(batch()), file_.doubles("logits"));

  RecordProperty("relative_error", fmt::format("{:.2e}", error));
  EXPECT_LE(error, forward_tolerance(dtype()));
}

TEST_P(Golden, GivesTheLoss) {
  const double expected = file_.number("loss_sum"), bound = forward_tolerance(dtype()) * expected;

  EXPECT_NEAR(model_.run_step({batch()}), expected, bound);
  EXPECT_NEAR(model_.stage.evaluate(model_.ops, model_.upload(batch())).loss, expected, bound);
}

TEST_P(Golden, GivesEveryGradient) {
  model_.run_step({batch()});
  const Gradients computed = model_.gradients(), expected = expected_gradients();

  const WorstGradient worst = worst_gradient(computed, expected);
  RecordProperty("worst_gradient", fmt::format("{} {:.2e}", worst.name, worst.error));
  EXPECT_LE(worst.error, gradient_tolerance(dtype())) << worst.name;
}

INSTANTIATE_TEST_SUITE_P(
    Models, Golden,
    testing::Combine(testing::Values(GoldenModel{"gpt2", gpt2_config()}, GoldenModel{"llama", llama_config()},
                                     GoldenModel{"kitchen_sink", kitchen_sink_config()}),
                     testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16)),
    [](const auto& model) { return std::get<0>(model.param).name + "_" + to_string(std::get<1>(model.param)); });

}  // namespace tests
