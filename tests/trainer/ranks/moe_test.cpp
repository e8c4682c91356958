/// Models with experts on the launched ranks against one rank: every way to share experts out, with every kind of
/// router, of balance and of what else splits; and what they send, to the byte.

#include "tests/support/tensors.h"
#include "tests/trainer/ranks/learner_fixture.h"
#include "trainer/agreement.h"
#include "trainer/plan.h"

namespace tests {

using tensor::Dtype;

class MoeRanks : public LearnerRanksTest {
 protected:
  static Settings experts() {
    return {"model.moe.num_experts=8",     "model.moe.ffn_hidden_size=12", "model.moe.z_loss_coef=0.1",
            "model.moe.aux_loss_coef=0.5", "train.micro_batch_size=1",     "train.max_grad_norm=0.1",
            "precision.compute=fp64"};
  }
  /// What the ranks of a block can be for experts, and for everything else.
  std::vector<Settings> expert_layouts() const {
    std::vector<Settings> layouts;
    for (int tp = 1; tp <= size(); tp *= 2) {
      for (int ep = 1; ep <= size(); ep *= 2) {
        for (int expert_tp = 1; ep * expert_tp <= size(); expert_tp *= 2) {
          layouts.push_back({fmt::format("parallel.tp={}", tp), fmt::format("parallel.ep={}", ep),
                             fmt::format("parallel.expert_tp={}", expert_tp)});
        }
      }
    }
    return layouts;
  }
  static std::vector<Settings> kinds() {
    return {{"train.micro_batch_size=0"},
            {"model.moe.router=sigmoid", "model.moe.balance=bias", "model.moe.bias_update_rate=0.05",
             "model.moe.num_groups=4", "model.moe.top_k_groups=2", "model.moe.shared_ffn_hidden_size=8"},
            {"model.moe.router=sigmoid", "model.moe.top_k=3", "model.moe.capacity_factor=0.75",
             "model.moe.normalize_top_k=false", "model.moe.layers=after:1"}};
  }
  /// Of the first layer's bias: each element from the rank that owns it.
  static Values owned_counts(LearnerOnRanks& run) {
    const parallel::Parameter& bias = run.store().at("layers.0.mlp.router.bias");
    const parallel::Range owned = run.store().owned_range(bias);
    const parallel::ParameterUnit& unit = bias.unit();
    Values counts(8, 0.0);
    if (owned.size() > 0) {
      const int64_t begin = bias.offset() + owned.begin - unit.own.begin;
      const Values own = values_of(unit.own_grads.rows(begin, begin + owned.size()));
      std::copy(own.begin(), own.end(), counts.begin() + owned.begin);
    }
    trainer::all_reduce_sums(run.context().world(), run.learner().ops().device(), counts);
    return counts;
  }
  void expect_equal_to_one_rank(const Settings& settings) {
    const Config on_ranks = config(settings);
    auto backend = tensor::make_cpu_backend({.num_threads = 1});
    const trainer::RankContext context(on_ranks, rank(), size(), factory_, {.ledger = ledger_});
    const auto source = trainer::make_synthetic_source(on_ranks);
    auto options = trainer::default_verify_options(Dtype::fp64);
    options.scalar_tolerance = 1e-12;
    options.steps = 2;
    const auto differences = trainer::verify(on_ranks, backend, context, *source, options);
    for (const trainer::WorstDifference& d : differences) {
      EXPECT_TRUE(d.passes()) << describe(settings) << trainer::format(differences);
    }
  }
};

TEST_F(MoeRanks, EqualOneRankOnEveryLayoutOfExperts) {
  for (const Settings& layout : expert_layouts()) {
    for (const Settings& kind : kinds()) expect_equal_to_one_rank(experts() + layout + kind);
  }
}

TEST_F(MoeRanks, EqualOneRankWithShardedTokens) {
  if (size() == 1) return;
  for (const Settings& kind : kinds()) {
    const Settings tokens = {"parallel.tp=2", "parallel.tp_sequence=true", fmt::format("parallel.ep={}", size())};
    expect_equal_to_one_rank(experts() + tokens + kind);
  }
}

TEST_F(MoeRanks, EqualOneRankWithSequencesInParts) {
  if (size() == 1) return;
  for (const Settings& kind : kinds()) {
    for (const char* method : {"parallel.sp_method=ring", "parallel.sp_method=all_gather"}) {
      const Settings layout = {"parallel.sp=2", method, fmt::format("parallel.ep={}", size()),
                               fmt::format("parallel.tp={}", size() / 2)};
      expect_equal_to_one_rank(experts() + layout + kind);
    }
  }
}

TEST_F(MoeRanks, EqualOneRankUnderEveryZeroStage) {
  if (size() == 1) return;
  for (const Settings& stage : stages()) {
    for (const char* recompute : {"train.recompute=none", "train.recompute=full"}) {
      const Settings layout = {"parallel.ep=2", "parallel.dp_out=1", recompute};
      for (const Settings& kind : kinds()) expect_equal_to_one_rank(experts() + layout + stage + kind);
    }
  }
}

TEST_F(MoeRanks, ReportTheSameRoutingAsOneRank) {
  for (const Settings& kind : kinds()) {
    const auto run = make(experts() + Settings{fmt::format("parallel.ep={}", size())} + kind);
    const auto alone = make_alone(experts() + kind);
    for (int64_t step = 1; step <= 3; ++step) {
      const auto ours = run->train(step).routing, expected = alone->train(step).routing;
      ASSERT_TRUE(ours && expected);
      EXPECT_EQ(ours->tokens_min, expected->tokens_min);
      EXPECT_EQ(ours->tokens_max, expected->tokens_max);
      EXPECT_EQ(ours->dropped_fraction, expected->dropped_fraction);
      EXPECT_NEAR(ours->aux_loss, expected->aux_loss, 1e-12);
      EXPECT_NEAR(ours->z_loss, expected->z_loss, 1e-12);
      EXPECT_EQ(ours->bias_min, expected->bias_min);
      EXPECT_EQ(ours->bias_max, expected->bias_max);
    }
  }
}

TEST_F(MoeRanks, CountTheChoicesOfAllRanksExactly) {
  for (const Settings& stage : stages()) {
    const Settings settings = experts() + kinds()[1] + stage;
    const auto run = make(settings + Settings{fmt::format("parallel.tp={}", std::min(2, size()))});
    const auto alone = make_alone(experts() + kinds()[1]);
    run->train(1);
    alone->train(1);

    EXPECT_EQ(owned_counts(*run), owned_counts(*alone)) << describe(stage);
  }
}

TEST_F(MoeRanks, EvaluateWhereSomeRanksHaveNoTokens) {
  const Settings settings = experts() + kinds()[2];
  const auto run = make(settings + Settings{fmt::format("parallel.ep={}", size())});
  const auto alone = make_alone(settings);
  const auto source = trainer::make_synthetic_source(run->config());

  const trainer::LossSum ours = run->learner().evaluate(source->read(1, 0, rank() == 0 ? 3 : 0), 3);
  const trainer::LossSum expected = alone->learner().evaluate(source->read(1, 0, 3), 3);

  EXPECT_EQ(ours.num_targets, expected.num_targets);
  EXPECT_NEAR(ours.loss, expected.loss, 1e-12 * expected.loss);
}

/// Two all-to-alls per layer, micro-batch and direction, each of the rows that the rank's tokens choose; two more where
/// all is recomputed.
TEST_F(MoeRanks, SendTheRowsOfTheirTokensTwicePerDirection) {
  if (size() == 1) return;
  for (const bool recomputes : {false, true}) {
    const Settings settings = experts() + Settings{fmt::format("parallel.ep={}", size()),
                                                   recomputes ? "train.recompute=full" : "train.recompute=none"};
    const auto run = make(settings);
    ledger_.end_step();

    run->train(1);
    trainer::agree({}, run->context().world(), run->learner().ops().device());

    const parallel::Bill bill = ledger_.end_step();
    const int64_t micro_batches = 8 / size(), layers = 2, rows = 8 * 2;  // tokens * top_k
    const int64_t calls = (recomputes ? 6 : 4) * layers * micro_batches, count = calls * rows * 20;
    EXPECT_EQ(bill.at({"ep", parallel::Collective::all_to_all_v, Dtype::fp64}),
              (parallel::BillLine{calls, count, 8 * count}));
    EXPECT_EQ(bill, trainer::planned_bill(config(settings), size(), rank()));
  }
}

}  // namespace tests
