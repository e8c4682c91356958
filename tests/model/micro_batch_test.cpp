/// How a step is cut into micro-batches, passes and threads changes nothing but the order of sums over micro-batches.
///
/// Bitwise equal: any number of threads (as far as the BLAS allows, see below); backward or its two halves;
/// micro-batches in flight or one after another (but for a tied embedding, whose two gradients then add up in another
/// order). Equal to rounding: another split of the same sequences into micro-batches, because the sum over tokens is
/// cut elsewhere.

#include "tests/model/model_configs.h"
#include "tests/model/test_model.h"

namespace tests {

using tensor::Dtype;

namespace {

model::ModelConfig with_dropout(model::ModelConfig config) {
  config.dropout = 0.2;
  return config;
}

std::vector<model::HostBatch> split(const model::HostBatch& batch, int64_t sequences_each) {
  std::vector<model::HostBatch> parts;
  for (int64_t first = 0; first < batch.num_sequences; first += sequences_each) {
    parts.push_back(sequences_of(batch, first, sequences_each));
  }
  return parts;
}

struct InFlight {
  model::MicroBatch batch;
  model::Stage::Saved saved;
};

InFlight forward(TestModel& model, const model::HostBatch& host) {
  InFlight flight{.batch = model.upload(host, 0.01), .saved = {}};
  model.stage.forward(model.ops, flight.batch, {}, flight.saved);
  return flight;
}

void backward(TestModel& model, InFlight& flight) {
  model.stage.backward(model.ops, flight.batch, {}, flight.saved, model::Reduce::later);
}

}  // namespace

class MicroBatches : public testing::TestWithParam<int64_t> {};

TEST_P(MicroBatches, OfAnySizeGiveTheSameLossAndGradients) {
  for (const model::ModelConfig& shape : {gpt2_config(), llama_config(), kitchen_sink_config()}) {
    const model::ModelConfig config = with_dropout(shape);
    const model::HostBatch batch = random_batch(config, 6, 1);
    TestModel whole(config, Dtype::fp64), parts(config, Dtype::fp64);

    const double loss = whole.run_step({batch});
    const double loss_of_parts = parts.run_step(split(batch, GetParam()));

    EXPECT_NEAR(loss_of_parts, loss, 1e-13 * loss);
    const WorstGradient worst = worst_gradient(parts.gradients(), whole.gradients());
    EXPECT_LE(worst.error, 1e-13) << worst.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Sequences, MicroBatches, testing::Values(1, 2, 3));

TEST(MicroBatch, LargerThanAChunkOfTheHeadGivesTheSame) {
  const model::ModelConfig config = llama_config();
  const model::HostBatch batch = random_batch(config, 84, 1);  // 1092 tokens: three chunks of at most 512
  TestModel whole(config, Dtype::fp64), parts(config, Dtype::fp64);

  const double loss = whole.run_step({batch});
  const double loss_of_parts = parts.run_step(split(batch, 28));

  EXPECT_NEAR(loss_of_parts, loss, 1e-13 * loss);
  EXPECT_EQ(whole.stage.evaluate(whole.ops, whole.upload(batch)).loss, loss);
  const WorstGradient worst = worst_gradient(parts.gradients(), whole.gradients());
  EXPECT_LE(worst.error, 1e-13) << worst.name;
}

TEST(MicroBatch, HoldsTheHalfChunksOfItsRankAndKnowsThePositionsOfAll) {
  const tensor::Backend backend = tensor::make_cpu_backend({.num_threads = 1});
  model::ModelConfig config = llama_config();
  config.seq_len = 8;
  const model::HostBatch host = random_batch(config, 2, 1);

  const model::MicroBatch batch = model::to_device(host, 3, {.rank = 1, .size = 2}, *backend.device);

  const Values positions = {2, 3, 4, 5, 2, 3, 4, 5};
  EXPECT_EQ(values_of(batch.positions), positions);
  EXPECT_EQ(values_of(batch.first_visible), (Values{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(values_of(batch.token_index), (Values{2, 3, 4, 5, 10, 11, 12, 13}));
  EXPECT_EQ(values_of(batch.positions_of_rank(0)), (Values{0, 1, 6, 7, 0, 1, 6, 7}));
  EXPECT_EQ(values_of(batch.positions_of_rank(1)), positions);
  EXPECT_EQ(values_of(batch.whole.positions), Values(host.positions.begin(), host.positions.end()));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(values_of(batch.tokens)[4 + i], host.tokens[10 + i]);
}

TEST(MicroBatch, OfNoSequencesAddsNothing) {
  const model::ModelConfig config = with_dropout(kitchen_sink_config());
  const model::HostBatch batch = random_batch(config, 2, 1), empty = random_batch(config, 0, 1);
  TestModel with_empty(config, Dtype::fp32), without(config, Dtype::fp32);

  EXPECT_EQ(with_empty.run_step({empty, batch, empty}), without.run_step({batch}));
  EXPECT_EQ(with_empty.gradients(), without.gradients());
}

TEST(MicroBatch, SplitIsBitwiseRepeatable) {
  const model::ModelConfig config = with_dropout(kitchen_sink_config());
  const std::vector<model::HostBatch> parts = split(random_batch(config, 6, 1), 2);
  TestModel first(config, Dtype::fp32), second(config, Dtype::fp32);

  EXPECT_EQ(first.run_step(parts), second.run_step(parts));
  EXPECT_EQ(first.gradients(), second.gradients());
}

TEST(MicroBatch, DoesNotSeeTheNumberOfThreads) {
  // Products large enough to be cut over threads. Their sums stay under 320 terms: OpenBLAS cuts longer ones in two,
  // and not at the same place for one thread as for several.
  model::ModelConfig config = with_dropout(kitchen_sink_config());
  config.hidden_size = 136;
  config.ffn_hidden_size = 150;
  config.seq_len = 77;
  const model::HostBatch batch = random_batch(config, 4, 1);
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
    TestModel one(config, dtype, {}, 1);
    const double loss = one.run_step({batch});
    TestModel two(config, dtype, {}, 2);

    EXPECT_EQ(two.run_step({batch}), loss);
    EXPECT_EQ(two.gradients(), one.gradients());
  }
}

TEST(Backward, IsItsTwoHalvesBitwise) {
  for (const model::Recompute recompute :
       {model::Recompute::none, model::Recompute::selective, model::Recompute::full}) {
    const model::ModelConfig config = with_dropout(kitchen_sink_config());
    TestModel whole(config, Dtype::fp32, {.recompute = recompute}),
        halves(config, Dtype::fp32, {.recompute = recompute});
    const model::HostBatch host = random_batch(config, 2, 1);

    InFlight flight = forward(whole, host);
    backward(whole, flight);
    flight = forward(halves, host);
    halves.stage.backward_input(halves.ops, flight.batch, {}, flight.saved);
    halves.stage.backward_weight(halves.ops, flight.batch, flight.saved, model::Reduce::later);

    EXPECT_EQ(halves.gradients(), whole.gradients());
  }
}

TEST(MicroBatchesInFlight, EqualOneAfterAnotherBitwise) {
  const model::ModelConfig config = with_dropout(llama_config());
  TestModel together(config, Dtype::fp32), apart(config, Dtype::fp32);
  const model::HostBatch a = random_batch(config, 2, 1), b = random_batch(config, 3, 2);

  InFlight flight_a = forward(together, a), flight_b = forward(together, b);
  backward(together, flight_a);
  backward(together, flight_b);
  for (const model::HostBatch* host : {&a, &b}) {
    InFlight flight = forward(apart, *host);
    backward(apart, flight);
  }

  EXPECT_EQ(together.gradients(), apart.gradients());
}

TEST(MicroBatchesInFlight, EqualOneAfterAnotherWithTiedEmbeddings) {
  const model::ModelConfig config = with_dropout(gpt2_config());
  TestModel together(config, Dtype::fp64), apart(config, Dtype::fp64);
  const model::HostBatch a = random_batch(config, 2, 1), b = random_batch(config, 3, 2);

  InFlight flight_a = forward(together, a), flight_b = forward(together, b);
  backward(together, flight_a);
  backward(together, flight_b);
  for (const model::HostBatch* host : {&a, &b}) {
    InFlight flight = forward(apart, *host);
    backward(apart, flight);
  }

  const WorstGradient worst = worst_gradient(together.gradients(), apart.gradients());
  EXPECT_LE(worst.error, 1e-14) << worst.name;
  EXPECT_TRUE(worst.error == 0 || worst.name == "embedding.token.weight") << worst.name;
}

TEST(Stages, ChainedEqualTheWholeModelBitwise) {
  const model::ModelConfig config = with_dropout(llama_config());
  TestModel whole(config, Dtype::fp32);
  const parallel::LayerGroups alone = whole.alone.groups();
  parallel::ParameterStore store({}, whole.alone.data_parallel);
  model::Stage first(config, {.first_layer = 0, .last_layer = 2, .has_head = false}, {}, alone, store);
  model::Stage last(config, {.first_layer = 2, .last_layer = 3, .has_embedding = false}, {}, alone, store);
  store.allocate(whole.ops, Dtype::fp32);
  for (model::Stage* stage : {&first, &last}) stage->prepare(*whole.backend.device, Dtype::fp32);
  for (parallel::Parameter* parameter : store.parameters()) {
    tensor::Tensor to = parameter->value();
    fill(to, values_of(whole.store.at(parameter->name()).value()));
  }

  InFlight flight = forward(whole, random_batch(config, 2, 1));
  backward(whole, flight);
  model::Stage::Saved saved_first, saved_last;
  tensor::Tensor hidden = first.forward(whole.ops, flight.batch, {}, saved_first);
  last.forward(whole.ops, flight.batch, std::move(hidden), saved_last);
  tensor::Tensor d_hidden = last.backward(whole.ops, flight.batch, {}, saved_last, model::Reduce::later);
  first.backward(whole.ops, flight.batch, std::move(d_hidden), saved_first, model::Reduce::later);

  EXPECT_EQ(saved_last.loss, flight.saved.loss);
  for (const auto& [name, gradient] : whole.gradients()) EXPECT_EQ(values_of(store.at(name).grad()), gradient) << name;
}

}  // namespace tests
