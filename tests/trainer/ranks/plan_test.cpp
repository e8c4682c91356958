/// What the plan says on paper is what a step of real ranks does: the same bill, the same bytes of memory.

#include <gmock/gmock.h>

#include "tests/trainer/ranks/learner_fixture.h"
#include "trainer/agreement.h"
#include "trainer/plan_agreement.h"

namespace tests {

using parallel::Bill;
using parallel::Group;
using trainer::Plan;

namespace {

/// Models and ways to cut a batch that differ in what is sent or kept.
std::vector<Settings> variants() {
  return {{"train.micro_batch_size=1"},  // as many micro-batches as there can be
          {"train.micro_batch_size=2", "model.tie_embeddings=false", "model.num_kv_heads=1", "model.norm=rms_norm",
           "model.bias=false", "model.position=rope", "model.head_dim=6", "model.qk_norm=false",
           "precision.compute=bf16", "train.recompute=full"},
          {"model.num_kv_heads=4", "model.seq_len=160", "parallel.reduce_every=micro_batch",
           "train.recompute=selective"}};  // 8 sequences: more than one chunk of the head
}

}  // namespace

class PlanOnRanks : public LearnerRanksTest {
 protected:
  Bill bill_of_step(LearnerOnRanks& run, int64_t step) {
    ledger_.end_step();
    run.train(step);
    trainer::agree({}, run.context().world(), run.learner().ops().device());
    return ledger_.end_step();
  }
  void expect_planned_memory(const Plan& plan, const LearnerOnRanks& run) {
    for (const trainer::PlannedMemory& planned : plan.memory) {
      const tensor::MemoryUse use = run.memory(planned.category);
      EXPECT_EQ(use.live_bytes, planned.kept_bytes) << to_string(planned.category);
      EXPECT_EQ(use.peak_bytes, planned.peak_bytes) << to_string(planned.category);
    }
  }
  void expect_as_planned(const Settings& settings) {
    SCOPED_TRACE(describe(settings));
    const Plan plan = make_plan(config(settings), size(), rank());
    const auto run = make(settings);

    for (const int64_t step : {1, 2}) {
      const Bill bill = bill_of_step(*run, step);
      EXPECT_EQ(bill, plan.bill) << format_bill(bill) << format_bill(plan.bill);
      EXPECT_EQ(bill.empty(), size() == 1);
      expect_planned_memory(plan, *run);
    }
    for (size_t i = 0; i < plan.units.size(); ++i) {
      const parallel::ParameterUnit& unit = *run->store().units().at(i);
      EXPECT_EQ(plan.units[i].name, unit.name);
      EXPECT_EQ(plan.units[i].own, unit.own);
    }
    EXPECT_EQ(plan.units.size(), run->store().units().size());
  }
};

TEST_F(PlanOnRanks, SaysWhatAStepSendsAndKeeps) {
  for (const Settings& layout : layouts()) {
    std::vector<Settings> token_shardings = {{"parallel.tp_sequence=false"}};
    if (layout.front() != "parallel.tp=1") token_shardings.push_back({"parallel.tp_sequence=true"});
    for (const Settings& tokens : token_shardings) {
      for (const Settings& stage : stages()) {
        for (const Settings& variant : variants()) expect_as_planned(layout + tokens + stage + variant);
      }
    }
  }
}

TEST_F(PlanOnRanks, IsAgreedOnBeforeARun) {
  const Config own = config();
  const tensor::Backend backend = tensor::make_cpu_backend({.num_threads = 1});

  EXPECT_NO_THROW(require_same_plan(make_plan(own, size()), own, factory_, *backend.device));
}

TEST_F(PlanOnRanks, RefusesARankWithAnotherConfig) {
  const bool is_last = size() > 1 && rank() == size() - 1;
  const Config own = is_last ? config({"optimizer.lr=2e-2"}) : config();
  const tensor::Backend backend = tensor::make_cpu_backend({.num_threads = 1});
  std::string message;
  try {
    require_same_plan(make_plan(own, size()), own, factory_, *backend.device);
  } catch (const tensor::LayoutError& error) {
    message = error.what();
  }

  if (size() == 1) {
    EXPECT_EQ(message, "");
  } else {
    EXPECT_THAT(message, testing::HasSubstr(fmt::format("rank {} read another config", size() - 1)));
  }
}

}  // namespace tests
