/// That a real step does what a plan says is shown on real ranks (ranks/plan_test.cpp); here is what needs none.

#include "trainer/plan.h"

#include <gmock/gmock.h>

#include <chrono>

#include "model/flops.h"
#include "tests/trainer/config_samples.h"
#include "tests/trainer/program.h"
#include "tests/trainer/tiny_run.h"
#include "trainer/plan_agreement.h"

namespace trainer {
namespace {

using parallel::BillKey;
using parallel::Collective;
using tensor::Dtype;
using tensor::MemoryCategory;
using testing::HasSubstr;
using Settings = std::vector<std::string>;

/// 8 sequences a step, one at a time where the settings do not say more.
Config sample(Settings settings = {}) {
  settings.insert(settings.begin(), "train.micro_batch_size=1");
  return parse_config(kValidConfig, "test.toml", settings);
}

Config large(const Settings& settings) {
  return parse_config(
      "[model]\npreset = \"llama-3-8b\"\n[train]\nsteps = 1\nglobal_batch_size = 16384\nmicro_batch_size = 1\n"
      "[precision]\ncompute = \"bf16\"\n[data]\ntrain = \"never read\"\n",
      "large.toml", settings);
}

int64_t kept_bytes(const Plan& plan, MemoryCategory category) {
  for (const PlannedMemory& memory : plan.memory) {
    if (memory.category == category) return memory.kept_bytes;
  }
  return -1;
}

template <class Act>
std::string layout_error(const Act& act) {
  try {
    act();
  } catch (const tensor::LayoutError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(Plan, OfOneRankSendsNothing) {
  const Plan plan = make_plan(sample({"train.micro_batch_size=4"}), 1);

  EXPECT_TRUE(plan.bill.empty());
  EXPECT_TRUE(plan.groups.empty());
  EXPECT_EQ(plan.num_parameters, model::parameter_count(sample().model));
  EXPECT_EQ(plan.split, (BatchSplit{.sequences_per_rank = 8, .micro_batch_size = 4, .num_microbatches = 2}));
}

TEST(Plan, OfDataParallelRanksReducesEveryGradientOnce) {
  const Plan plan = make_plan(sample(), 4);

  const parallel::BillLine& line = plan.bill.at({"zero", Collective::all_reduce, Dtype::fp32});
  EXPECT_EQ(line.calls, 4);  // embedding, two layers, head
  EXPECT_EQ(line.count, plan.num_parameters);
  EXPECT_EQ(line.bytes, 4 * plan.num_parameters);
}

/// 16 ranks: tp 2 (which share out tokens, too), sp 2, pp 2, dp 2; four micro-batches of two sequences.
Config all_axes() {
  return parse_config(
      "[model]\nvocab_size = 256\nnum_layers = 4\nhidden_size = 64\nnum_heads = 4\nnum_kv_heads = 2\n"
      "ffn_hidden_size = 128\nseq_len = 32\ntie_embeddings = false\n"
      "[parallel]\ntp = 2\ntp_sequence = true\nsp = 2\npp = 2\nstages = [2, 2]\nzero_stage = 1\n"
      "[train]\nsteps = 1\nglobal_batch_size = 16\nmicro_batch_size = 2\n"
      "[precision]\ncompute = \"bf16\"\n[data]\ntrain = \"never read\"\n",
      "all_axes.toml", {});
}

/// By hand: an activation of a micro-batch is 32 / 2 * 2 * 64 elements, and keys and values are 2 * 32 / 2 * 2 * 16.
TEST(Plan, OfSixteenRanksOverAllAxesHasTheBytesOfTheFormulas) {
  const Plan first = make_plan(all_axes(), 16, 0), last = make_plan(all_axes(), 16, 8);
  const auto expect = [](const Plan& plan, const BillKey& key, int64_t calls, int64_t bytes) {
    ASSERT_TRUE(plan.bill.contains(key)) << key.axis << " " << to_string(key.op);
    EXPECT_EQ(plan.bill.at(key).calls, calls) << key.axis << " " << to_string(key.op);
    EXPECT_EQ(plan.bill.at(key).bytes, bytes) << key.axis << " " << to_string(key.op);
  };

  EXPECT_EQ(first.num_parameters, 180'800);
  EXPECT_EQ(first.total.numel, 45'312);
  EXPECT_EQ(last.total.numel, 45'376);
  for (const Plan* plan : {&first, &last}) {
    expect(*plan, {"sp", Collective::send, Dtype::bf16}, 16, 32'768);
    expect(*plan, {"sp", Collective::receive, Dtype::bf16}, 16, 32'768);
    expect(*plan, {"sp", Collective::send, Dtype::fp32}, 8, 32'768);
    expect(*plan, {"tp", Collective::all_gather, Dtype::bf16}, 52, 212'992);
    expect(*plan, {"tp", Collective::reduce_scatter, Dtype::bf16}, 36, 147'456);
    expect(*plan, {"pp", Collective::send, Dtype::bf16}, 4, 8'192);
  }
  EXPECT_EQ((first.bill.at({"zero", Collective::reduce_scatter, Dtype::fp32}).bytes), 181'248);
  EXPECT_EQ((first.bill.at({"zero", Collective::all_gather, Dtype::bf16}).bytes), 90'624);
  EXPECT_EQ((last.bill.at({"zero", Collective::reduce_scatter, Dtype::fp32}).bytes), 181'504);
  EXPECT_EQ((last.bill.at({"zero", Collective::all_gather, Dtype::bf16}).bytes), 90'752);

  // Gradients of norms are summed over tp after ZeRO's cut, each rank its own; and the softmax takes 384 bytes for each
  // of four micro-batches.
  const auto tp_sums = [](int first_rank) {
    int64_t bytes = 0;
    for (int rank = first_rank; rank < first_rank + 8; rank += 2) {
      const Plan plan = make_plan(all_axes(), 16, rank);
      const auto found = plan.bill.find({"tp", Collective::all_reduce, Dtype::fp32});
      if (found != plan.bill.end()) bytes += found->second.bytes;
    }
    return bytes;
  };
  EXPECT_EQ(tp_sums(0), 1'024);
  EXPECT_EQ(tp_sums(8), 1'280 + 4 * 1'536);
}

TEST(Plan, CountsWhatMicroBatchesSendOnceForEach) {
  const auto sums = [](int64_t num_microbatches) {
    const Plan plan =
        make_plan(sample({"parallel.tp=2", fmt::format("train.global_batch_size={}", num_microbatches)}), 2);
    return plan.bill.at({"tp", Collective::all_reduce, Dtype::fp32}).bytes;
  };
  const int64_t one = sums(1);

  for (const int64_t num_microbatches : {2, 3, 4, 5, 100}) EXPECT_EQ(sums(num_microbatches), num_microbatches * one);
}

TEST(Plan, KeepsTheStateThatTheStageSays) {
  const int64_t dp = 1024;
  for (const int64_t stage : {0, 1, 2, 3}) {
    const Plan plan = make_plan(large({fmt::format("parallel.zero_stage={}", stage)}), static_cast<int>(dp));
    const auto expect_bytes = [&](MemoryCategory category, int64_t bytes, bool is_cut) {
      const double expected = static_cast<double>(plan.num_parameters * bytes) / (is_cut ? 1024.0 : 1.0);
      EXPECT_NEAR(static_cast<double>(kept_bytes(plan, category)), expected, 0.03 * expected)
          << to_string(category) << " of stage " << stage;  // cuts lie at whole rows
    };

    expect_bytes(MemoryCategory::parameters, 2, stage >= 3);
    expect_bytes(MemoryCategory::gradients, 4, stage >= 2);
    expect_bytes(MemoryCategory::optimizer, 12, stage >= 1);
  }
}

TEST(Plan, CutsEveryUnitWithoutGapsOverTheRanks) {
  const Config config = sample({"parallel.zero_stage=2", "parallel.tp=2"});
  std::vector<int64_t> ends(make_plan(config, 8).units.size(), 0);
  int64_t own = 0;
  for (int rank = 0; rank < 8; rank += 2) {
    const Plan plan = make_plan(config, 8, rank);
    own += plan.total.own.size();
    EXPECT_LE(plan.total.least_cut, plan.total.own.size());
    EXPECT_GE(plan.total.largest_cut, plan.total.own.size());
    for (size_t i = 0; i < ends.size(); ++i) {
      const PlannedUnit& unit = plan.units[i];
      EXPECT_EQ(unit.own.begin, ends[i]);
      EXPECT_LE(unit.least_cut, unit.own.size());
      EXPECT_GE(unit.largest_cut, unit.own.size());
      ends[i] = unit.own.end;
    }
  }
  EXPECT_EQ(own, make_plan(config, 8).total.numel);
  for (size_t i = 0; i < ends.size(); ++i) EXPECT_EQ(ends[i], make_plan(config, 8).units[i].numel);
}

TEST(Plan, TakesNoTimeForSixteenThousandRanks) {
  const auto begin = std::chrono::steady_clock::now();

  const Plan plan =
      make_plan(large({"parallel.tp=8", "parallel.dp_out=4", "parallel.zero_stage=3", "parallel.tp_sequence=true"}),
                16'384, 9001);

  EXPECT_EQ(plan.degrees, (parallel::Degrees{.tp = 8, .dp_in = 512, .dp_out = 4}));
  EXPECT_EQ(plan.split.num_microbatches, 8);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

/// 16 tokens of each rank choose 2 of 8 experts: 16 * 2 * 64 * 2 = 4,096 bytes, twice per layer and direction.
TEST(Plan, CountsTheRowsThatGoToExpertsAndBack) {
  const Config config = parse_config(
      "[model]\nvocab_size = 256\nnum_layers = 4\nhidden_size = 64\nnum_heads = 4\nnum_kv_heads = 2\n"
      "seq_len = 32\ntie_embeddings = false\n[model.moe]\nnum_experts = 8\ntop_k = 2\nffn_hidden_size = 64\n"
      "[parallel]\ntp = 2\nsp = 2\npp = 2\nep = 4\ntp_sequence = true\n[train]\nsteps = 1\nglobal_batch_size = 16\n"
      "micro_batch_size = 2\n[precision]\ncompute = \"bf16\"\n[data]\ntrain = \"never read\"\n",
      "moe.toml", {});

  EXPECT_THAT(layout_in_words(make_plan(config, 16)), "16 ranks = tp 2 * sp 2 * dp 2 * pp 2, ep 4, zero_stage 0");
  for (const int rank : {0, 5, 15}) {
    const parallel::Bill bill = planned_bill(config, 16, rank);
    const int64_t layers = 2, micro_batches = 4, calls = layers * micro_batches;
    EXPECT_EQ(bill.at({"ep", Collective::all_to_all_v, Dtype::bf16}),
              (parallel::BillLine{4 * calls, 4 * calls * 2'048, 4 * calls * 4'096}));
    EXPECT_EQ(bill.at({"ep", Collective::all_to_all_v, Dtype::int32}),
              (parallel::BillLine{calls, 8 * calls, 32 * calls}));
  }
}

TEST(Plan, FitsTheConfigsThatComeWithTheProgram) {
  const std::string folder = std::string(TRAINER_SOURCE_DIR) + "/configs/";
  const auto plans = [&](const std::string& name, const std::vector<int>& worlds) {
    const Config config = load_config(folder + name);
    for (const int world : worlds) {
      const Plan plan = make_plan(config, world, world - 1);
      EXPECT_EQ(plan.split.num_microbatches * plan.split.micro_batch_size * plan.degrees.dp(),
                config.train.global_batch_size);
      EXPECT_EQ(plan.bill.empty(), world == 1);
    }
  };

  plans("quickstart.toml", {1, 2, 3, 6});
  plans("gpt2_124m.toml", {1, 8, 64, 128});
  plans("llama_1b.toml", {1, 16, 512});
  plans("moe_small.toml", {4, 8});
}

TEST(Plan, NamesGroupsOfTheSameRanksTogether) {
  const Plan plan = make_plan(sample({"parallel.tp=2"}), 8, 3);

  const auto zero = std::find_if(plan.groups.begin(), plan.groups.end(), [](const PlannedGroup& group) {
    return std::find(group.names.begin(), group.names.end(), "zero") != group.names.end();
  });
  ASSERT_NE(zero, plan.groups.end());
  EXPECT_EQ(*zero, (PlannedGroup{{"dp_in", "dp", "zero", "grad"}, 4, "1, 3, 5, 7"}));
}

TEST(Plan, ReadsBackFromItsJson) {
  for (const Plan& plan :
       {make_plan(sample(), 1), make_plan(sample({"parallel.tp=4", "parallel.zero_stage=1"}), 8, 5)}) {
    EXPECT_EQ(plan_from_json(to_json(plan)), plan);
    EXPECT_EQ(to_json(plan_from_json(to_json(plan))), to_json(plan));
  }
}

TEST(Plan, HasAHashThatTellsLayoutsApart) {
  const std::string hash = plan_hash(make_plan(sample(), 4));

  EXPECT_EQ(hash.size(), 16u);
  EXPECT_EQ(plan_hash(make_plan(sample(), 4)), hash);
  EXPECT_EQ(plan_hash(make_plan(sample({"optimizer.lr=1e-4"}), 4)), hash);
  EXPECT_NE(plan_hash(make_plan(sample(), 2)), hash);
  EXPECT_NE(plan_hash(make_plan(sample({"parallel.zero_stage=1"}), 4)), hash);
}

TEST(Plan, RefusesAWorldThatTheLayoutDoesNotFill) {
  EXPECT_THAT(layout_error([] { make_plan(sample({"parallel.tp=2"}), 3); }), HasSubstr("does not divide the 3 ranks"));
  EXPECT_THAT(layout_error([] { make_plan(sample({"parallel.dp=2"}), 4); }), HasSubstr("but this launch has 4 ranks"));
  EXPECT_THAT(layout_error([] { make_plan(sample(), 16); }),
              HasSubstr("global_batch_size = 8 is not a multiple of 16"));
  EXPECT_THAT(layout_error([] { make_plan(sample(), 4, 4); }), HasSubstr("no rank 4 in a world of 4"));
}

TEST(DefaultWorldSize, IsTheProductOfTheDegrees) {
  EXPECT_EQ(default_world_size({}), 1);
  EXPECT_EQ(default_world_size({.tp = 4, .dp = 3}), 12);
  EXPECT_EQ(default_world_size({.tp = 2, .dp_out = 4}), 8);
  EXPECT_EQ(default_world_size({.tp = int64_t{1} << 40, .sp = int64_t{1} << 40}), 1 << 20);
}

TEST(PlanAgreement, NamesTheRanksThatReadAnotherConfig) {
  EXPECT_EQ(layout_error([] { require_equal({{1, 2}, {1, 2}, {1, 2}}); }), "(accepted)");
  EXPECT_THAT(layout_error([] {
                require_equal({{1, 2}, {1, 3}, {1, 2}, {5, 6}});
              }),
              HasSubstr("Of 4 ranks, ranks 1, 3 read another config than rank 0."));
  EXPECT_THAT(layout_error([] {
                require_equal({{1, 2}, {1, 2}, {4, 2}});
              }),
              HasSubstr("Of 3 ranks, rank 2 made another plan than rank 0 of the same config."));
}

TEST(PlanAgreement, DoesNotListHundredsOfRanks) {
  std::vector<Fingerprints> of_ranks(200, {1, 2});
  of_ranks[0] = {1, 3};

  EXPECT_THAT(layout_error([&] { require_equal(of_ranks); }),
              HasSubstr("ranks 1, 2, 3, 4, 5, 6, 7, 8 and 191 more read"));
}

class PlanCommandTest : public testing::Test {
 protected:
  PlanCommandTest() { tests::write_file(folder_ / "sample.toml", to_toml(sample())); }
  tests::Outcome run(std::vector<std::string> arguments) const {
    return run_trainer(std::move(arguments), folder_.path());
  }

  tests::TemporaryFolder folder_;
};

TEST_F(PlanCommandTest, PrintsTablesForPeople) {
  const auto outcome = run({"plan", "sample.toml", "--world", "8", "--set", "parallel.tp=2", "--rank", "1"});

  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  for (const char* text : {"8 ranks = tp 2 * dp 4, zero_stage 0", "groups of rank 1", "layers.0 to layers.1",
                           "memory of rank 1", "what rank 1 moves in one step"}) {
    EXPECT_THAT(outcome.output, HasSubstr(text));
  }
}

TEST_F(PlanCommandTest, PrintsJsonForPrograms) {
  const auto outcome = run({"plan", "sample.toml", "--world", "4", "--json"});

  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, to_json(make_plan(load_config(folder_ / "sample.toml"), 4)));
}

TEST_F(PlanCommandTest, NeedsNoLauncherWhereOneIsFaked) {
  auto command = trainer_command({"plan", "sample.toml", "--world", "4"}, folder_.path());
  command.environment.push_back("OMPI_COMM_WORLD_SIZE=2");

  EXPECT_EQ(tests::run_command(command).exit_code, 0);
}

TEST_F(PlanCommandTest, RefusesALayoutInOneMessage) {
  expect_refusal(run({"plan", "sample.toml", "--world", "3", "--set", "parallel.tp=2"}), 3,
                 "does not divide the 3 ranks");
  expect_refusal(run({"plan", "sample.toml", "--world", "4", "--rank", "4"}), 3, "no rank 4");
  expect_refusal(run({"plan", "sample.toml", "--world", "0"}), 2, "--world");
}

TEST(TrainingRun, WritesItsPlanIntoItsFolder) {
  const TinyData data;
  const Config config = data.config(data.folder() / "run");

  ASSERT_EQ(train_here(config), tensor::ExitCode::finished);

  const Plan plan = make_plan(config, 1);
  EXPECT_EQ(tests::read_file(data.folder() / "run/plan.json"), to_json(plan));
  EXPECT_THAT(tests::read_file(data.folder() / "run/log.txt"), HasSubstr("plan " + plan_hash(plan) + ": 1 rank"));
}

}  // namespace
}  // namespace trainer
