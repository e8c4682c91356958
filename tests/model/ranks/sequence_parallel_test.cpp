/// Ranks that share every sequence give what one rank gives, in fp64: losses and every gradient, whatever the method,
/// the documents, the window and what else is split.

#include "tests/model/ranks/sequence_parallel_fixture.h"

namespace tests {

using model::ModelConfig;
using model::Recompute;
using tensor::Dtype;

namespace {

constexpr double kTolerance = 1e-12;

ModelConfig with(ModelConfig config, auto&& change) {
  change(config);
  return sequence_shared(config);
}

struct Case {
  std::string name;
  ModelConfig config;
};

std::vector<Case> cases() {
  const auto same = [](ModelConfig&) {};
  return {
      {"gpt2", with(shared_gpt2(), same)},
      {"llama", with(shared_llama(), same)},
      {"kitchen_sink", with(shared_kitchen_sink(), same)},
      {"window", with(shared_llama(), [](ModelConfig& c) { c.sliding_window = 7; })},
      {"no_positions", with(shared_llama(), [](ModelConfig& c) { c.position = model::Position::none; })},
      {"qk_norm", with(shared_llama(), [](ModelConfig& c) { c.qk_norm = true; })},
      {"twelve_heads",
       with(shared_llama(), [](ModelConfig& c) { c.num_heads = 12, c.num_kv_heads = 4, c.head_dim = 3; })},
  };
}

/// Head counts that the ranks cannot share out evenly; one tensor-parallel rank.
std::vector<Case> uneven_cases() {
  const auto heads = [](int64_t q, int64_t kv) {
    return [=](ModelConfig& c) { c.num_heads = q, c.num_kv_heads = kv, c.head_dim = 6; };
  };
  return {
      {"five_heads", with(shared_llama(), heads(5, 5))},
      {"five_heads_one_kv", with(shared_gpt2(), heads(5, 1))},
      {"nine_heads_three_kv", with(shared_llama(), heads(9, 3))},
      {"fourteen_heads_seven_kv", with(shared_kitchen_sink(), heads(14, 7))},
  };
}

/// All ways to cut the world into tp, sp and dp.
std::vector<SequenceLayout> layouts() {
  const int world = mpi_environment().world_size();
  std::vector<SequenceLayout> layouts;
  for (int sp = 1; sp <= world; sp *= 2) {
    for (int tp = 1; tp * sp <= world; tp *= 2) {
      layouts.push_back({tp, sp, TokenSharding::whole});
      if (tp > 1) layouts.push_back({tp, sp, TokenSharding::sharded});
    }
  }
  return layouts;
}

std::vector<model::HostBatch> micro_batches_of(const ModelConfig& config, int data_rank) {
  const auto seed = static_cast<uint64_t>(10 * data_rank);
  return {batch_of_lengths(config, 3, seed), random_batch(config, 1, seed + 1)};
}

double valid_targets(const std::vector<model::HostBatch>& batches) {
  double sum = 0;
  for (const model::HostBatch& batch : batches) sum += num_valid_targets(batch);
  return sum;
}

}  // namespace

class SequenceParallel : public TensorParallelTest, public testing::WithParamInterface<SpMethod> {
 protected:
  struct Options {
    SequenceLayout layout;
    Recompute recompute = Recompute::none;
    parallel::ZeroOptions zero = {};
  };

  SequenceMesh mesh_of(const ModelConfig& config, const SequenceLayout& layout) {
    return SequenceMesh(layout, GetParam(), config.kv_heads(), factory_);
  }
  SequenceLayout all_ranks() const { return {.tp = 1, .sp = size()}; }

  void expect_results_of_one_rank(const ModelConfig& config, const Options& options) {
    const SequenceLayout& layout = options.layout;
    SCOPED_TRACE(fmt::format("tp {}, sp {}, {}", layout.tp, layout.sp,
                             layout.tokens == TokenSharding::sharded ? "tp_sequence" : ""));
    const SequenceMesh mesh = mesh_of(config, layout);
    std::vector<model::HostBatch> all;
    for (int data_rank = 0; data_rank < mesh.dp().size(); ++data_rank) {
      for (model::HostBatch& batch : micro_batches_of(config, data_rank)) all.push_back(std::move(batch));
    }
    const model::StageOptions stage = {.recompute = options.recompute, .seed = 5};
    TestModel split(config, Dtype::fp64, stage, 1, mesh.sharing(options.zero));
    TestModel alone(config, Dtype::fp64, stage, 1);

    const double part = split.run_step(micro_batches_of(config, mesh.dp().rank()), 1 / valid_targets(all));
    const double loss = mesh.total(part, *split.backend.device);
    const double expected = alone.run_step(all);

    EXPECT_NEAR(loss, expected, kTolerance * expected);
    const WorstGradient worst = worst_gradient(split, alone);
    EXPECT_LE(worst.error, kTolerance) << worst.name;
  }
};

TEST_P(SequenceParallel, HasTheLossAndGradientsOfOneRank) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    for (const SequenceLayout& layout : layouts()) expect_results_of_one_rank(each.config, {layout});
  }
}

TEST_P(SequenceParallel, SharesOutHeadsThatItsRanksDoNotDivide) {
  for (const Case& each : uneven_cases()) {
    SCOPED_TRACE(each.name);
    expect_results_of_one_rank(each.config, {all_ranks()});
  }
}

TEST_P(SequenceParallel, Recomputes) {
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    for (const SequenceLayout& layout : layouts()) {
      expect_results_of_one_rank(sequence_shared(shared_kitchen_sink()), {layout, recompute});
    }
  }
}

TEST_P(SequenceParallel, CutsStateUnderEveryZeroStage) {
  for (const int stage : {1, 2, 3}) {
    for (const SequenceLayout& layout : layouts()) {
      expect_results_of_one_rank(sequence_shared(shared_gpt2()), {layout, Recompute::none, {stage}});
    }
  }
}

TEST_P(SequenceParallel, SplitsBackward) {
  const ModelConfig config = sequence_shared(shared_llama());
  const SequenceMesh mesh = mesh_of(config, all_ranks());
  TestModel halves(config, Dtype::fp64, {}, 1, mesh.sharing()), alone(config, Dtype::fp64, {}, 1);
  const model::HostBatch host = batch_of_lengths(config, 2, 1);
  const model::MicroBatch batch = halves.upload(host);
  model::Stage::Saved saved;

  halves.store.begin_step();
  halves.stage.forward(halves.ops, batch, {}, saved);
  halves.stage.backward_input(halves.ops, batch, {}, saved);
  halves.stage.backward_weight(halves.ops, batch, saved, model::Reduce::now);
  halves.store.finish_gradients();

  alone.run_step({host}, 1);
  const WorstGradient worst = worst_gradient(halves, alone);
  EXPECT_LE(worst.error, kTolerance) << worst.name;
}

TEST_P(SequenceParallel, HoldsWhereARankHasNoValidTarget) {
  const ModelConfig config = sequence_shared(shared_llama());
  const SequenceMesh mesh = mesh_of(config, all_ranks());
  model::HostBatch batch = random_batch(config, 1, 1);
  for (size_t i = 0; i < batch.targets.size(); ++i) batch.targets[i] = i == 1 ? 3 : -1;  // rank 0's
  TestModel split(config, Dtype::fp64, {}, 1, mesh.sharing()), alone(config, Dtype::fp64, {}, 1);

  const double loss = mesh.total(split.run_step({batch}), *split.backend.device);

  const double expected = alone.run_step({batch});
  EXPECT_NEAR(loss, expected, kTolerance * expected);
  const WorstGradient worst = worst_gradient(split, alone);
  EXPECT_LE(worst.error, kTolerance) << worst.name;
}

TEST_P(SequenceParallel, TakesAMicroBatchWithoutSequences) {
  const ModelConfig config = sequence_shared(shared_llama());
  const SequenceMesh mesh = mesh_of(config, all_ranks());
  TestModel split(config, Dtype::fp64, {}, 1, mesh.sharing()), alone(config, Dtype::fp64, {}, 1);
  const model::HostBatch batch = random_batch(config, 1, 1);

  split.run_step({batch, {}}, 1);

  alone.run_step({batch}, 1);
  const WorstGradient worst = worst_gradient(split, alone);
  EXPECT_LE(worst.error, kTolerance) << worst.name;
}

TEST_P(SequenceParallel, GivesTheSameBitsAgain) {
  const ModelConfig config = sequence_shared(shared_kitchen_sink());
  const SequenceMesh mesh = mesh_of(config, all_ranks());
  TestModel first(config, Dtype::fp32, {}, 1, mesh.sharing()), second(config, Dtype::fp32, {}, 1, mesh.sharing());
  const std::vector<model::HostBatch> batches = micro_batches_of(config, 0);

  EXPECT_EQ(first.run_step(batches), second.run_step(batches));
  EXPECT_EQ(first.gradients(), second.gradients());
}

TEST_P(SequenceParallel, TrainsInBf16) {
  const ModelConfig config = sequence_shared(shared_kitchen_sink());
  const SequenceMesh mesh = mesh_of(config, all_ranks());
  const model::HostBatch batch = batch_of_lengths(config, 3, 1);
  TestModel split(config, Dtype::bf16, {.seed = 5}, 1, mesh.sharing()), alone(config, Dtype::bf16, {.seed = 5}, 1);

  const double loss = mesh.total(split.run_step({batch}), *split.backend.device);

  const double expected = alone.run_step({batch});
  EXPECT_NEAR(loss, expected, 0.01 * expected);
  EXPECT_LE(worst_gradient(split, alone).error, 0.1) << worst_gradient(split, alone).name;
}

TEST_P(SequenceParallel, EvaluatesAsOneRank) {
  const ModelConfig config = sequence_shared(shared_llama());
  const SequenceMesh mesh = mesh_of(config, all_ranks());
  TestModel split(config, Dtype::fp64, {}, 1, mesh.sharing()), alone(config, Dtype::fp64, {}, 1);
  const model::HostBatch batch = batch_of_lengths(config, 2, 1);

  const double part = split.stage.evaluate(split.ops, split.upload(batch)).loss;
  const double loss = mesh.total(part, *split.backend.device);

  const double expected = alone.stage.evaluate(alone.ops, alone.upload(batch)).loss;
  EXPECT_NEAR(loss, expected, kTolerance * expected);
}

TEST_P(SequenceParallel, DecodesOnEveryRankWithoutAMessage) {
  const ModelConfig config = sequence_shared(shared_llama());
  const SequenceMesh mesh = mesh_of(config, all_ranks());
  TestModel split(config, Dtype::fp64, {}, 1, mesh.sharing()), alone(config, Dtype::fp64, {}, 1);
  const model::HostBatch sequence = random_batch(config, 1, 1);
  model::KvCache cache = split.stage.make_cache(config.seq_len, Dtype::fp64, *split.backend.device);
  split.part = {};
  ledger_.end_step();

  const Values logits = values_of(split.stage.decode(split.ops, split.upload(sequence), {}, cache));

  const Values expected = alone.logits(sequence);
  EXPECT_LE(relative_error(logits, Values(expected.end() - config.vocab_size, expected.end())), kTolerance);
  EXPECT_TRUE(ledger_.step().empty());
}

INSTANTIATE_TEST_SUITE_P(Methods, SequenceParallel,
                         testing::Values(SpMethod::ring, SpMethod::ulysses, SpMethod::all_gather),
                         [](const auto& drawn) { return to_string(drawn.param); });

}  // namespace tests
