/// N tensor-parallel ranks give what one rank gives, in fp64: losses, logits, every gradient.

#include "tests/model/ranks/tensor_parallel_fixture.h"

namespace tests {

using model::ModelConfig;
using model::Recompute;
using tensor::Dtype;

namespace {

constexpr double kTolerance = 1e-12;  // fp64, sums of a few hundred terms through two layers

struct Case {
  std::string name;
  ModelConfig config;
};

ModelConfig with(ModelConfig config, auto&& change) {
  change(config);
  return config;
}

std::vector<Case> cases() {
  return {
      {"gpt2", shared_gpt2()},
      {"llama", shared_llama()},
      {"kitchen_sink", shared_kitchen_sink()},
      {"gpt2_untied", with(shared_gpt2(), [](ModelConfig& c) { c.tie_embeddings = false; })},
      {"llama_tied", with(shared_llama(), [](ModelConfig& c) { c.tie_embeddings = true; })},
      {"multi_query_layer_norm",
       with(shared_kitchen_sink(), [](ModelConfig& c) { c.norm = tensor::NormKind::layer_norm; })},
      {"three_tokens", with(shared_gpt2(), [](ModelConfig& c) { c.vocab_size = 3; })},
      {"three_tokens_untied", with(shared_llama(), [](ModelConfig& c) { c.vocab_size = 3; })},
      {"five_tokens", with(shared_kitchen_sink(), [](ModelConfig& c) { c.vocab_size = 5; })},
      {"no_dropout", with(shared_llama(), [](ModelConfig& c) { c.dropout = 0; })},
  };
}

}  // namespace

class TensorParallelModel : public TensorParallelTest,
                            public testing::WithParamInterface<std::tuple<Case, TokenSharding>> {
 protected:
  const ModelConfig& config() const { return std::get<0>(GetParam()).config; }
  Groups groups_ = make_groups(config().kv_heads());
  parallel::TensorParallel tensor_parallel_ = groups_.with(std::get<1>(GetParam()));
};

TEST_P(TensorParallelModel, HasTheLossAndGradientsOfOneRank) {
  const std::vector<model::HostBatch> micro_batches = {batch_of_documents(config(), 3, 1),
                                                       batch_of_documents(config(), 1, 2)};
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    const model::StageOptions options = {.recompute = recompute, .seed = 5};
    TestModel sharded(config(), Dtype::fp64, options, tensor_parallel_);
    TestModel alone(config(), Dtype::fp64, options, 1);

    const double loss = sharded.run_step(micro_batches);
    const double expected = alone.run_step(micro_batches);

    EXPECT_NEAR(loss, expected, kTolerance * expected);
    const WorstGradient worst = worst_gradient(sharded, alone);
    EXPECT_LE(worst.error, kTolerance) << worst.name;
  }
}

TEST_P(TensorParallelModel, HasTheLossOnEveryRankBitwise) {
  TestModel sharded(config(), Dtype::fp64, {}, tensor_parallel_);
  const double loss = sharded.run_step({batch_of_documents(config(), 3, 1)});
  tensor::Tensor losses = sharded.backend.device->allocate({size(), 1}, Dtype::fp64, tensor::MemoryCategory::other);

  groups_.tp->all_gather(make_tensor(*sharded.backend.device, {1, 1}, Dtype::fp64, {loss}), losses).wait();

  EXPECT_EQ(values_of(losses), Values(static_cast<size_t>(size()), loss));
}

TEST_P(TensorParallelModel, EvaluatesAndHasLogitsAsOneRank) {
  TestModel sharded(config(), Dtype::fp64, {}, tensor_parallel_), alone(config(), Dtype::fp64, {}, 1);
  const model::HostBatch batch = batch_of_documents(config(), 2, 1);

  const double loss = sharded.stage.evaluate(sharded.ops, sharded.upload(batch)).loss;
  const Values logits = sharded.logits(batch);

  const double expected = alone.stage.evaluate(alone.ops, alone.upload(batch)).loss;
  EXPECT_NEAR(loss, expected, kTolerance * expected);
  EXPECT_LE(relative_error(logits, alone.logits(batch)), kTolerance);
}

TEST_P(TensorParallelModel, DecodesTokenByTokenAsOneRank) {
  TestModel sharded(config(), Dtype::fp64, {}, tensor_parallel_), alone(config(), Dtype::fp64, {}, 1);
  const model::HostBatch sequence = random_batch(config(), 1, 1);
  const model::MicroBatch whole = alone.upload(sequence);
  const tensor::Tensor expected = alone.stage.logits(alone.ops, whole);
  model::KvCache cache = sharded.stage.make_cache(config().seq_len, Dtype::fp64, *sharded.backend.device);

  for (int64_t token = 0; token < config().seq_len; ++token) {
    const model::MicroBatch next = sharded.upload(tokens_of(sequence, token, token + 1));
    const Values logits = values_of(sharded.stage.decode(sharded.ops, next, {}, cache));
    EXPECT_LE(relative_error(logits, values_of(expected.rows(token, token + 1))), kTolerance) << "token " << token;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TensorParallelModel,
                         testing::Combine(testing::ValuesIn(cases()),
                                          testing::Values(TokenSharding::whole, TokenSharding::sharded)),
                         [](const auto& drawn) {
                           const bool is_sharded = std::get<1>(drawn.param) == TokenSharding::sharded;
                           return std::get<0>(drawn.param).name + (is_sharded ? "_sharded" : "_whole");
                         });

TEST_F(TensorParallelTest, CountsEveryParameterOnce) {
  for (const Case& each : cases()) {
    const Groups groups = make_groups(each.config.kv_heads());
    TestModel sharded(each.config, Dtype::fp64, {}, groups.with(TokenSharding::whole));
    TestModel alone(each.config, Dtype::fp64, {}, 1);
    const auto owned = static_cast<double>(sharded.store.owned_numel());
    tensor::Tensor total = make_tensor(*sharded.backend.device, {1}, Dtype::fp64, {owned});

    groups.tp->all_reduce(total, parallel::Reduction::sum).wait();

    EXPECT_EQ(values_of(total)[0], static_cast<double>(alone.store.stored_numel())) << each.name;
  }
}

TEST_F(TensorParallelTest, HoldsItsPartOfEveryMatrix) {
  const ModelConfig config = with(shared_llama(), [](ModelConfig& c) { c.vocab_size = 64; });
  const Groups groups = make_groups(config.kv_heads());

  const TestModel sharded(config, Dtype::fp32, {}, groups.with(TokenSharding::whole));

  for (const parallel::Parameter* parameter : sharded.store.parameters()) {
    const parallel::ParameterSpec& spec = parameter->spec();
    const bool is_kv = spec.name.ends_with(".k.weight") || spec.name.ends_with(".v.weight");
    const int64_t parts = spec.shape.num_dims() == 1 ? 1 : is_kv ? std::min(size(), 2) : size();
    EXPECT_EQ(parameter->stored_numel() * parts, spec.shape.numel()) << spec.name;
  }
}

TEST_F(TensorParallelTest, WritesZerosToThePaddingOfTables) {
  for (const bool tied : {true, false}) {
    const ModelConfig config = with(shared_gpt2(), [&](ModelConfig& c) { c.tie_embeddings = tied; });
    const Groups groups = make_groups(config.kv_heads());
    TestModel sharded(config, Dtype::fp64, {}, groups.with(TokenSharding::whole));
    for (const auto& unit : sharded.store.units()) fill(unit->grads, Values(static_cast<size_t>(unit->numel), NAN));

    sharded.run_step({random_batch(config, 2, 1)});

    for (const parallel::Parameter* table : sharded.store.parameters()) {
      if (table->spec().shape[0] != config.vocab_size) continue;
      const parallel::Slice& slice = *table->spec().slice;
      const Values padding = values_of(table->grad().rows(slice.end - slice.begin, slice.stored));
      EXPECT_EQ(padding, Values(padding.size(), 0.0)) << table->name();
    }
  }
}

TEST_F(TensorParallelTest, TrainsInBf16) {
  const ModelConfig config = shared_kitchen_sink();
  const Groups groups = make_groups(config.kv_heads());
  const model::HostBatch batch = batch_of_documents(config, 3, 1);
  for (const TokenSharding tokens : {TokenSharding::whole, TokenSharding::sharded}) {
    TestModel sharded(config, Dtype::bf16, {.seed = 5}, groups.with(tokens));
    TestModel alone(config, Dtype::bf16, {.seed = 5}, 1);

    const double loss = sharded.run_step({batch});
    const double expected = alone.run_step({batch});

    EXPECT_NEAR(loss, expected, 0.01 * expected);
    EXPECT_LE(worst_gradient(sharded, alone).error, 0.1) << worst_gradient(sharded, alone).name;
  }
}

}  // namespace tests
