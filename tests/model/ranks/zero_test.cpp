/// Data-parallel ranks under every ZeRO stage, alone and over tensor-parallel ranks, give the gradients of one rank.
/// What the model tells its store (when it needs values, when gradients are complete) is what stages 2 and 3 live by.

#include "tests/model/ranks/tensor_parallel_fixture.h"

namespace tests {

using model::ModelConfig;
using model::Recompute;
using parallel::Group;
using parallel::Reshard;
using tensor::Dtype;

namespace {

constexpr double kTolerance = 1e-12;

/// One rank's view of tp * dp ranks.
class MeshOfRanks {
 public:
  MeshOfRanks(int tp, int64_t num_kv_heads, TokenSharding tokens, parallel::CommunicatorFactory& factory)
      : mesh_({.tp = tp, .dp_in = mpi_environment().world_size() / tp}),
        groups_(mesh_, mpi_environment().world_rank(), factory),
        kv_replicas_(
            factory.make("kv", parallel::kv_replica_ranks(mesh_, mpi_environment().world_rank(), num_kv_heads))),
        tensor_parallel_{groups_.at(Group::tp), *kv_replicas_, tokens},
        data_parallel_{groups_.at(Group::zero), groups_.at(Group::dp_out)} {}

  Sharing sharing(const parallel::ZeroOptions& zero) const { return {&tensor_parallel_, &data_parallel_, zero}; }
  parallel::Communicator& dp() const { return groups_.at(Group::dp); }

 private:
  parallel::Mesh mesh_;
  parallel::MeshCommunicators groups_;
  std::unique_ptr<parallel::Communicator> kv_replicas_;
  parallel::TensorParallel tensor_parallel_;
  parallel::DataParallel data_parallel_;
};

struct Layout {
  int tp;
  TokenSharding tokens;
};

std::vector<Layout> layouts() {
  std::vector<Layout> layouts;
  for (int tp = 1; tp <= mpi_environment().world_size(); tp *= 2) {
    layouts.push_back({tp, TokenSharding::whole});
    layouts.push_back({tp, TokenSharding::sharded});
  }
  return layouts;
}

/// Two micro-batches for each data-parallel rank.
std::vector<model::HostBatch> micro_batches_of(const ModelConfig& config, int data_rank) {
  const auto seed = static_cast<uint64_t>(10 * data_rank);
  return {batch_of_documents(config, 2, seed), batch_of_documents(config, 1 + data_rank % 2, seed + 1)};
}

}  // namespace

class Zero : public TensorParallelTest, public testing::WithParamInterface<parallel::ZeroOptions> {
 protected:
  void expect_gradients_of_one_rank(const ModelConfig& config, const Layout& layout, Recompute recompute) {
    const MeshOfRanks mesh(layout.tp, config.kv_heads(), layout.tokens, factory_);
    std::vector<model::HostBatch> all;
    for (int data_rank = 0; data_rank < mesh.dp().size(); ++data_rank) {
      for (model::HostBatch& batch : micro_batches_of(config, data_rank)) all.push_back(std::move(batch));
    }
    double num_valid = 0;
    for (const model::HostBatch& batch : all) num_valid += num_valid_targets(batch);
    const model::StageOptions options = {.recompute = recompute, .seed = 5};
    TestModel sharded(config, Dtype::fp64, options, 1, mesh.sharing(GetParam()));
    TestModel alone(config, Dtype::fp64, options, 1);
    alone.run_step(all);

    for (int step = 0; step < 2; ++step) {  // the second finds what the first left
      sharded.run_step(micro_batches_of(config, mesh.dp().rank()), 1 / num_valid);
      const WorstGradient worst = worst_gradient(sharded, alone);
      EXPECT_LE(worst.error, kTolerance) << worst.name << ", tp " << layout.tp << ", step " << step;
      sharded.store.publish_values();
    }
  }
};

TEST_P(Zero, HasTheGradientsOfOneRank) {
  for (const ModelConfig& config : {shared_gpt2(), shared_llama(), shared_kitchen_sink()}) {
    for (const Layout& layout : layouts()) expect_gradients_of_one_rank(config, layout, Recompute::none);
  }
}

TEST_P(Zero, RecomputesWithValuesInPlace) {
  for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
    for (const Layout& layout : layouts()) expect_gradients_of_one_rank(shared_gpt2(), layout, recompute);
  }
}

TEST_P(Zero, SplitsBackward) {
  const ModelConfig config = shared_gpt2();
  const MeshOfRanks mesh(1, config.kv_heads(), TokenSharding::whole, factory_);
  const model::StageOptions options = {.recompute = Recompute::selective};
  TestModel halves(config, Dtype::fp64, options, 1, mesh.sharing(GetParam()));
  TestModel alone(config, Dtype::fp64, options, 1);
  const model::HostBatch host = random_batch(config, 2, 1);
  const model::MicroBatch batch = halves.upload(host, 1.0 / mesh.dp().size());
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

TEST_P(Zero, EvaluatesAndDecodes) {
  const ModelConfig config = shared_gpt2();
  const MeshOfRanks mesh(1, config.kv_heads(), TokenSharding::whole, factory_);
  TestModel sharded(config, Dtype::fp64, {}, 1, mesh.sharing(GetParam()));
  TestModel alone(config, Dtype::fp64, {}, 1);
  const model::HostBatch sequence = random_batch(config, 1, 1);
  model::KvCache cache = sharded.stage.make_cache(config.seq_len, Dtype::fp64, *sharded.backend.device);
  const model::MicroBatch batch = sharded.upload(sequence);

  const double loss = sharded.stage.evaluate(sharded.ops, batch).loss;
  const Values logits = values_of(sharded.stage.decode(sharded.ops, batch, {}, cache));

  EXPECT_EQ(loss, alone.stage.evaluate(alone.ops, batch).loss);
  const Values expected = alone.logits(sequence);
  EXPECT_LE(relative_error(logits, Values(expected.end() - config.vocab_size, expected.end())), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Stages, Zero,
                         testing::Values(parallel::ZeroOptions{0}, parallel::ZeroOptions{1}, parallel::ZeroOptions{2},
                                         parallel::ZeroOptions{3, Reshard::forward},
                                         parallel::ZeroOptions{3, Reshard::never}),
                         [](const auto& drawn) {
                           const bool keeps = drawn.param.reshard == Reshard::never;
                           return std::to_string(drawn.param.stage) + (keeps ? "_never_reshards" : "");
                         });

}  // namespace tests
