/// What data parallelism moves in a step, counted by the ledger, is what its formulas say, to the byte. With n
/// parameters on this rank, m micro-batches, gradients of wg and values of wp bytes:
///
///   stage   reductions               gathers
///   0       all_reduce n wg          none
///   1       reduce_scatter n wg      all_gather n wp
///   2       m reduce_scatter n wg    all_gather n wp
///   3       m reduce_scatter n wg    per micro-batch: head 1, each block and the final norm 2 (never resharded: 1),
///                                    embeddings 1, and 1 more where the head reads its table again
///
/// Over dp_out: one all_reduce of what this rank keeps of the sums.

#include "tests/trainer/ranks/learner_fixture.h"

namespace tests {

using parallel::Bill;
using parallel::Collective;
using parallel::Group;
using parallel::ParameterUnit;
using parallel::Reshard;
using tensor::Dtype;

class ZeroBill : public LearnerRanksTest {
 protected:
  static int64_t num_micro_batches(const LearnerOnRanks& run) {
    const auto& train = run.config().train;
    return train.global_batch_size / run.context().num_data_ranks() / train.micro_batch_size;
  }
  /// Gathers of a unit's values in one micro-batch under stage 3.
  static int64_t gathers_of(const ParameterUnit& unit, const Config& config) {
    const bool reshards = config.parallel.zero_reshard == Reshard::forward;
    if (unit.name == "head" || unit.name == "embedding.position") return 1;
    if (unit.name == "embedding.token") return reshards && config.model.tie_embeddings ? 2 : 1;
    return reshards ? 2 : 1;
  }
  static Bill expected_bill(LearnerOnRanks& run) {
    const Config& config = run.config();
    const int64_t stage = config.parallel.zero_stage, m = num_micro_batches(run);
    Bill bill;
    const auto add = [&](Group group, Collective op, Dtype dtype, int64_t count, int64_t calls) {
      const bool talks = calls > 0 && run.context().group(group).size() > 1;
      if (talks) add_to_bill(bill, {to_string(group), op, dtype}, count, calls);
    };
    const int64_t reductions = stage >= 2 || config.parallel.reduce_every == parallel::ReduceEvery::micro_batch ? m : 1;
    for (const auto& unit : run.store().units()) {
      const auto reduction = stage == 0 ? Collective::all_reduce : Collective::reduce_scatter;
      const int64_t gathers = stage == 3 ? m * gathers_of(*unit, config) : stage > 0 ? 1 : 0;
      add(Group::zero, reduction, Dtype::fp32, unit->numel, reductions);
      add(Group::zero, Collective::all_gather, config.precision.compute, unit->numel, gathers);
      add(Group::dp_out, Collective::all_reduce, Dtype::fp32, stage == 0 ? unit->numel : unit->own.size(), 1);
    }
    return bill;
  }
  /// The step's bill, and apart from it the bytes of losses, counts and norms.
  std::pair<Bill, int64_t> bill_of_step(LearnerOnRanks& run) {
    ledger_.end_step();
    run.train(1);
    Bill bill = ledger_.end_step();
    const int64_t all = total_bytes(bill);
    std::erase_if(bill, [](const auto& line) { return line.first.axis != "zero" && line.first.axis != "dp_out"; });
    return {bill, all - total_bytes(bill)};
  }
  std::vector<Settings> data_parallel_layouts() const {
    std::vector<Settings> layouts = {{"parallel.dp_out=1"}};
    if (size() > 1) layouts.push_back({"parallel.dp_out=2"});
    return layouts;
  }
  void expect_bill(const Settings& settings) {
    SCOPED_TRACE(describe(settings));
    const auto run = make(settings + Settings{"train.micro_batch_size=1"});
    const Bill expected = expected_bill(*run);
    const auto [bill, bytes_of_scalars] = bill_of_step(*run);

    EXPECT_EQ(bill, expected) << format_bill(bill) << format_bill(expected);
    EXPECT_LT(bytes_of_scalars, 1000) << "something else is sent";
  }
};

TEST_F(ZeroBill, IsThatOfTheFormulas) {
  for (const Settings& layout : data_parallel_layouts()) {
    for (const Settings& stage : stages()) {
      expect_bill(layout + stage);
      expect_bill(layout + stage + Settings{"model.tie_embeddings=false", "precision.compute=bf16"});
    }
  }
}

TEST_F(ZeroBill, OfRecomputeIsTheSame) {
  for (const Settings& stage : stages()) expect_bill(stage + Settings{"train.recompute=full"});
}

TEST_F(ZeroBill, GrowsWhereEveryMicroBatchIsReduced) {
  for (const int stage : {0, 1}) {
    expect_bill({"parallel.reduce_every=micro_batch", fmt::format("parallel.zero_stage={}", stage)});
  }
}

/// In bytes, written out for one stage as the formula has it.
TEST_F(ZeroBill, OfStage1IsOneReductionAndOneGather) {
  const auto run = make({"parallel.zero_stage=1", "precision.compute=bf16", "train.micro_batch_size=1"});
  const int64_t n = run->store().stored_numel();

  const auto [bill, bytes_of_scalars] = bill_of_step(*run);

  EXPECT_EQ(total_bytes(bill), size() > 1 ? n * 4 + n * 2 : 0);
}

}  // namespace tests
