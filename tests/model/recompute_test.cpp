/// Recompute trades time for memory and changes no bit.

#include "tests/model/model_configs.h"
#include "tests/model/test_model.h"

namespace tests {

using model::Recompute;
using tensor::Dtype;

namespace {

struct StepResult {
  double loss = 0;
  Gradients gradients;
  bool operator==(const StepResult&) const = default;
};

StepResult run_with(Recompute recompute, const model::ModelConfig& config, Dtype dtype) {
  TestModel model(config, dtype, {.recompute = recompute, .seed = 5});
  const double loss = model.run_step({random_batch(config, 3, 1), random_batch(config, 2, 2)});
  return {loss, model.gradients()};
}

/// Bytes of activations that live between forward and backward.
int64_t kept_bytes(Recompute recompute) {
  TestModel model(llama_config(), Dtype::fp32, {.recompute = recompute});
  const model::MicroBatch batch = model.upload(random_batch(model.config, 4, 1));
  model::Stage::Saved saved;
  model.stage.forward(model.ops, batch, {}, saved);
  return model.backend.device->pool().use(tensor::MemoryCategory::activations).live_bytes;
}

class RecomputeModes : public testing::TestWithParam<std::tuple<Dtype, double>> {
 protected:
  Dtype dtype() const { return std::get<0>(GetParam()); }
  model::ModelConfig with_dropout(model::ModelConfig config) const {
    config.dropout = std::get<1>(GetParam());
    return config;
  }
};

}  // namespace

TEST_P(RecomputeModes, GiveBitwiseTheSameLossAndGradients) {
  for (const model::ModelConfig& shape : {gpt2_config(), llama_config(), kitchen_sink_config()}) {
    const model::ModelConfig config = with_dropout(shape);
    const StepResult kept = run_with(Recompute::none, config, dtype());

    EXPECT_EQ(run_with(Recompute::selective, config, dtype()), kept);
    EXPECT_EQ(run_with(Recompute::full, config, dtype()), kept);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, RecomputeModes,
                         testing::Combine(testing::Values(Dtype::fp32, Dtype::bf16), testing::Values(0.0, 0.2)));

TEST(Recompute, KeepsLessTheMoreItRecomputes) {
  const int64_t none = kept_bytes(Recompute::none), selective = kept_bytes(Recompute::selective),
                full = kept_bytes(Recompute::full);

  EXPECT_LT(selective, none);
  EXPECT_LT(full, selective / 3);
}

TEST(Recompute, LeavesNothingBehindAfterBackward) {
  TestModel model(kitchen_sink_config(), Dtype::fp32);
  const model::MicroBatch batch = model.upload(random_batch(model.config, 2, 1));
  const auto live_bytes = [&] { return model.backend.device->pool().total().live_bytes; };
  const int64_t before = live_bytes();
  model::Stage::Saved saved;

  model.stage.forward(model.ops, batch, {}, saved);
  EXPECT_GT(live_bytes(), before);
  model.stage.backward(model.ops, batch, {}, saved, model::Reduce::later);

  EXPECT_EQ(live_bytes(), before);
}

TEST(Evaluation, KeepsNothingAndEqualsTheTrainingLossWithoutDropout) {
  model::ModelConfig config = kitchen_sink_config();
  TestModel model(config, Dtype::fp32);
  const model::MicroBatch batch = model.upload(random_batch(config, 2, 1));
  const int64_t before = model.backend.device->pool().total().live_bytes;

  const double loss = model.stage.evaluate(model.ops, batch).loss;

  EXPECT_EQ(model.backend.device->pool().total().live_bytes, before);
  EXPECT_EQ(loss, model.run_step({random_batch(config, 2, 1)}));
}

TEST(Evaluation, HasNoDropout) {
  model::ModelConfig config = kitchen_sink_config();
  const model::HostBatch host = random_batch(config, 2, 1);
  TestModel plain(config, Dtype::fp32);
  config.dropout = 0.5;
  TestModel dropping(config, Dtype::fp32);

  EXPECT_EQ(dropping.stage.evaluate(dropping.ops, dropping.upload(host)).loss,
            plain.stage.evaluate(plain.ops, plain.upload(host)).loss);
  EXPECT_NE(dropping.run_step({host}), plain.run_step({host}));
}

}  // namespace tests
