/// What tensor parallelism moves, counted by the ledger, is what its formulas say, to the byte.
///
/// A is one activation, hidden_size elements for each token of the micro-batch. Per micro-batch:
///                  whole tokens                     sharded tokens
///   each layer     forward 2, backward 2 all_reduce  forward 2, backward 4 all_gather; 2 and 2 reduce_scatter
///   embedding      forward 1 all_reduce              forward 1 reduce_scatter, backward 1 all_gather
///   head           1 all_reduce                      1 all_gather, 1 reduce_scatter
///   softmax        a chunk of 512 tokens: all_reduce of row maxima, and of two sums in one message

#include "tests/model/ranks/tensor_parallel_fixture.h"

namespace tests {

using model::ModelConfig;
using model::Recompute;
using parallel::Bill;
using parallel::Collective;
using tensor::Dtype;

namespace {

class ExpectedBill {
 public:
  explicit ExpectedBill(const ModelConfig& config) : config_(config) {}

  void add(Collective op, int64_t count, int64_t calls = 1, const std::string& axis = "tp") {
    parallel::add_to_bill(bill_, {.axis = axis, .op = op, .dtype = Dtype::fp64}, count, calls);
  }
  void add_micro_batch(int64_t tokens, TokenSharding sharding) {
    const int64_t activation = tokens * config_.hidden_size;
    if (sharding == TokenSharding::whole) {
      add(Collective::all_reduce, activation, 4 * config_.num_layers + 2);
    } else {
      add(Collective::all_gather, activation, 6 * config_.num_layers + 2);
      add(Collective::reduce_scatter, activation, 4 * config_.num_layers + 2);
    }
    for (int64_t begin = 0; begin < tokens; begin += 512) {
      const int64_t rows = std::min<int64_t>(512, tokens - begin);
      add(Collective::all_reduce, rows);
      add(Collective::all_reduce, 2 * rows);
    }
  }
  /// Full recompute makes the forward of a layer again, but for the last product.
  void add_recompute(int64_t tokens, TokenSharding sharding) {
    const int64_t activation = tokens * config_.hidden_size;
    if (sharding == TokenSharding::whole) {
      add(Collective::all_reduce, activation, config_.num_layers);
    } else {
      add(Collective::all_gather, activation, 2 * config_.num_layers);
      add(Collective::reduce_scatter, activation, config_.num_layers);
    }
  }

  /// Nothing where there is one rank.
  Bill bill(int num_ranks) const { return num_ranks > 1 ? bill_ : Bill(); }

 private:
  ModelConfig config_;
  Bill bill_;
};

}  // namespace

class TensorParallelBill : public TensorParallelTest, public testing::WithParamInterface<TokenSharding> {
 protected:
  Bill bill_of_step(const ModelConfig& config, const std::vector<model::HostBatch>& micro_batches,
                    Recompute recompute = Recompute::none) {
    const Groups groups = make_groups(config.kv_heads());
    TestModel model(config, Dtype::fp64, {.recompute = recompute}, groups.with(GetParam()));
    model.run_step(micro_batches);
    return ledger_.end_step();
  }
  bool is_sharded() const { return GetParam() == TokenSharding::sharded; }
};

TEST_P(TensorParallelBill, OfALayerIsThatOfTheFormulas) {
  const ModelConfig config = shared_gpt2();
  ExpectedBill expected(config);
  for (const int64_t num_sequences : {3, 1}) expected.add_micro_batch(num_sequences * 12, GetParam());
  if (is_sharded()) expected.add(Collective::all_reduce, 2 * (2 * 2 + 1) * 24);  // weights and biases of all norms

  const Bill bill = bill_of_step(config, {random_batch(config, 3, 1), random_batch(config, 1, 2)});

  EXPECT_EQ(bill, expected.bill(size())) << format_bill(bill);
}

TEST_P(TensorParallelBill, OfSelectiveRecomputeIsTheSame) {
  const ModelConfig config = shared_gpt2();
  const std::vector<model::HostBatch> batch = {random_batch(config, 3, 1)};
  const Bill expected = bill_of_step(config, batch);

  EXPECT_EQ(bill_of_step(config, batch, Recompute::selective), expected);
}

TEST_P(TensorParallelBill, OfFullRecomputeAddsTheForwardOfLayers) {
  const ModelConfig config = shared_gpt2();
  ExpectedBill expected(config);
  expected.add_micro_batch(36, GetParam());
  expected.add_recompute(36, GetParam());
  if (is_sharded()) expected.add(Collective::all_reduce, 2 * (2 * 2 + 1) * 24);

  const Bill bill = bill_of_step(config, {random_batch(config, 3, 1)}, Recompute::full);

  EXPECT_EQ(bill, expected.bill(size())) << format_bill(bill);
}

TEST_P(TensorParallelBill, OfLogitsIsInChunks) {
  const ModelConfig config = shared_gpt2();
  ExpectedBill expected(config);
  expected.add_micro_batch(600, GetParam());
  if (is_sharded()) expected.add(Collective::all_reduce, 2 * (2 * 2 + 1) * 24);

  const Bill bill = bill_of_step(config, {random_batch(config, 50, 1)});

  EXPECT_EQ(bill, expected.bill(size())) << format_bill(bill);
}

/// Once a step: the norms of heads, and k and v where ranks hold copies of them.
TEST_P(TensorParallelBill, OfSharedHeadsIsOneSumAStep) {
  const ModelConfig config = shared_kitchen_sink();
  ExpectedBill expected(config);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) expected.add_micro_batch(12, GetParam());
  const int64_t head_norms = 2 * 2 * 10, norms = is_sharded() ? (2 * 2 + 1) * 24 : 0;
  expected.add(Collective::all_reduce, head_norms + norms);
  expected.add(Collective::all_reduce, 2 * 2 * 10 * (24 + 1), 1, "kv");

  const Bill bill = bill_of_step(config, {random_batch(config, 1, 1), random_batch(config, 1, 2)});

  EXPECT_EQ(bill, expected.bill(size())) << format_bill(bill);
}

TEST_P(TensorParallelBill, OfEvaluationIsThatOfForward) {
  const ModelConfig config = shared_llama();
  ExpectedBill expected(config);
  const int64_t activation = 24 * config.hidden_size;
  if (is_sharded()) {
    expected.add(Collective::all_gather, activation, 2 * config.num_layers + 1);
    expected.add(Collective::reduce_scatter, activation, 2 * config.num_layers + 1);
  } else {
    expected.add(Collective::all_reduce, activation, 2 * config.num_layers + 1);
  }
  expected.add(Collective::all_reduce, 24);
  expected.add(Collective::all_reduce, 2 * 24);
  const Groups groups = make_groups(config.kv_heads());
  TestModel model(config, Dtype::fp64, {}, groups.with(GetParam()));

  model.stage.evaluate(model.ops, model.upload(random_batch(config, 2, 1)));

  EXPECT_EQ(ledger_.step(), expected.bill(size())) << format_bill(ledger_.step());
}

INSTANTIATE_TEST_SUITE_P(Tokens, TensorParallelBill, testing::Values(TokenSharding::whole, TokenSharding::sharded),
                         [](const auto& drawn) { return drawn.param == TokenSharding::sharded ? "sharded" : "whole"; });

}  // namespace tests
