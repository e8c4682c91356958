/// Dropout is a function of seed, step, place in the model and place of the token in the step's batch.

#include "tests/model/model_configs.h"
#include "tests/model/test_model.h"

namespace tests {

using tensor::Dtype;

TEST(Dropout, DependsOnSeedStepAndTokenIndexAlone) {
  model::ModelConfig config = kitchen_sink_config();
  config.dropout = 0.5;
  const model::HostBatch host = random_batch(config, 2, 1);
  const auto loss_of = [&](uint64_t seed, int64_t step, int64_t first_token_index) {
    TestModel model(config, Dtype::fp32, {.seed = seed});
    model::MicroBatch batch = model.upload(host);
    batch.step = step;
    for (int64_t i = 0; i < batch.num_tokens(); ++i) batch.token_index.data<int64_t>()[i] += first_token_index;
    model::Stage::Saved saved;
    model.stage.forward(model.ops, batch, {}, saved);
    return saved.loss;
  };

  EXPECT_EQ(loss_of(5, 3, 0), loss_of(5, 3, 0));
  EXPECT_NE(loss_of(6, 3, 0), loss_of(5, 3, 0));
  EXPECT_NE(loss_of(5, 4, 0), loss_of(5, 3, 0));
  EXPECT_NE(loss_of(5, 3, 26), loss_of(5, 3, 0));
}

/// Matrices are 0 and what goes into the five dropouts of two layers is 1, 2, 4, 8 and 16, so that the bits of a result
/// (halved: kept elements are doubled) tell which dropouts kept the element.
TEST(Dropout, DrawsAnotherMaskAtEachPlace) {
  model::ModelConfig config = gpt2_config();
  config.num_layers = 2;
  config.dropout = 0.5;
  TestModel whole(config, Dtype::fp32);
  parallel::ParameterStore store({}, whole.alone.data_parallel);
  const model::Stage body(config, {.first_layer = 0, .last_layer = 2, .has_head = false}, {.seed = 5},
                          whole.alone.groups(), store);
  store.allocate(whole.ops, Dtype::fp32);
  const std::map<std::string, double> inputs{{"embedding.token.weight", 1},
                                             {"layers.0.attention.out.bias", 2},
                                             {"layers.0.mlp.down.bias", 4},
                                             {"layers.1.attention.out.bias", 8},
                                             {"layers.1.mlp.down.bias", 16}};
  for (parallel::Parameter* parameter : store.parameters()) {
    const double value = inputs.contains(parameter->name()) ? inputs.at(parameter->name()) : 0;
    tensor::Tensor to = parameter->value();
    fill(to, Values(static_cast<size_t>(to.numel()), value));
  }

  model::Stage::Saved saved;
  const Values hidden = values_of(body.forward(whole.ops, whole.upload(random_batch(config, 6, 1)), {}, saved));

  const auto count = static_cast<double>(hidden.size());
  for (unsigned first = 1; first < 32; first *= 2) {
    for (unsigned second = first; second < 32; second *= 2) {
      const auto keep_both = [&](double x) {
        return (static_cast<unsigned>(x / 2) & (first | second)) == (first | second);
      };
      const double share = static_cast<double>(std::count_if(hidden.begin(), hidden.end(), keep_both)) / count;
      const double expected = first == second ? 0.5 : 0.25;
      EXPECT_NEAR(share, expected, 4 * std::sqrt(expected * (1 - expected) / count)) << first << " and " << second;
    }
  }
}

}  // namespace tests
