/// Every kind of mistake in a config: the message names file and line, the value, and the fix.

#include <gmock/gmock.h>

#include "tests/trainer/config_samples.h"

namespace trainer {
namespace {

using testing::HasSubstr;

struct Mistake {
  std::string name;
  std::string part, by;            ///< what of the valid config is replaced by what
  std::vector<std::string> tells;  ///< what the message must contain besides file and line
  tensor::ExitCode code = tensor::ExitCode::config;
  int64_t lines_below = 0;  ///< the mistake's line, counted from the replaced part
};
void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

class ConfigMistake : public testing::TestWithParam<Mistake> {};

TEST_P(ConfigMistake, IsReportedWithPlaceValueAndFix) {
  const Mistake& mistake = GetParam();
  const std::string text = broken(mistake.part, mistake.by);
  const int64_t line = line_at(kValidConfig, kValidConfig.find(mistake.part)) + mistake.lines_below;

  const Refusal refusal = refusal_of(text);

  EXPECT_EQ(refusal.code, mistake.code) << refusal.message;
  EXPECT_THAT(refusal.message, testing::StartsWith(fmt::format("test.toml:{}: ", line)));
  EXPECT_THAT(refusal.message, HasSubstr("Fix: "));
  for (const std::string& part : mistake.tells) EXPECT_THAT(refusal.message, HasSubstr(part));
  const size_t first = refusal.message.find("Fix: ");
  EXPECT_EQ(refusal.message.find("Fix: ", first + 1), std::string::npos) << "one mistake, one message";
}

std::string name_of_mistake(const testing::TestParamInfo<Mistake>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Typos, ConfigMistake,
    testing::Values(
        Mistake{"Run", "seed = 7", "sede = 7", {"run.sede", "did you mean run.seed?"}},
        Mistake{"Model", "num_layers = 2", "num_layer = 2", {"model.num_layer", "model.num_layers?"}},
        Mistake{"RequiredKey", "vocab_size", "vocabsize", {"model.vocabsize", "model.vocab_size?"}},
        Mistake{"ModelOtherWord", "num_heads = 4", "n_heads = 4", {"model.n_heads", "model.num_heads?"}},
        Mistake{"Parallel", "tp = 1", "tpp = 1", {"parallel.tpp", "parallel.tp?"}},
        Mistake{"Train", "global_batch_size", "globl_batch_size", {"train.globl_batch_size", "train.global_batch"}},
        Mistake{"Precision", "compute", "comptue", {"precision.comptue", "precision.compute?"}},
        Mistake{"Optimizer", "beta2", "beta_2", {"optimizer.beta_2", "optimizer.beta2?"}},
        Mistake{"LrSchedule", "warmup_steps", "warmup", {"lr_schedule.warmup", "lr_schedule.warmup_steps?"}},
        Mistake{"Data", "valid = \"c.bin\"", "vald = \"c.bin\"\nvalid_fraction = 0.1", {"data.vald", "data.valid?"}},
        Mistake{"Checkpoint", "every_steps = 20", "every_step = 20", {"checkpoint.every_step", "every_steps?"}},
        Mistake{"Log",
                "[log]\nevery_steps",
                "[log]\nevery_stesp",
                {"log.every_stesp", "log.every_steps?"},
                tensor::ExitCode::config,
                1},
        Mistake{"Cluster", "peak_tflops", "peek_tflops", {"cluster.peek_tflops", "cluster.peak_tflops?"}},
        Mistake{"Table", "[optimizer]", "[optimiser]", {"there is no table [optimiser]", "did you mean optimizer?"}},
        Mistake{"KeyOfAnotherTable",
                "steps = 100",
                "steps = 100\nlr = 0.1",
                {"train.lr", "did you mean optimizer.lr, in table [optimizer]?"},
                tensor::ExitCode::config,
                1},
        Mistake{"KeyOutsideOfTables", "[run]", "seed = 3\n[run]", {"seed stands outside of any table", "run.seed"}},
        Mistake{"NothingNear", "seed = 7", "zzzzzzzz = 7", {"run.zzzzzzzz", "name, dir or seed"}},
        Mistake{"SubTable",
                "[parallel]",
                "[model.rope_scalin]\nfactor = 2\n[parallel]",
                {"no table [model.rope_scalin]", "did you mean model.rope_scaling?"}}),
    name_of_mistake);

INSTANTIATE_TEST_SUITE_P(
    WrongTypes, ConfigMistake,
    testing::Values(
        Mistake{"StringForInteger",
                "num_layers = 2",
                "num_layers = \"two\"",
                {"model.num_layers = \"two\" is a string", "an integer from 1", "number of transformer blocks"}},
        Mistake{"FloatForInteger", "steps = 100", "steps = 1e2", {"train.steps = 100", "write steps = 100."}},
        Mistake{
            "StringForFloat", "lr = 3e-4", "lr = \"3e-4\"", {"optimizer.lr = \"3e-4\" is a string", "without quotes"}},
        Mistake{"IntegerForBoolean", "bias = false", "bias = 0", {"model.bias = 0", "true or false"}},
        Mistake{"IntegerForString", "name = \"test\"", "name = 5", {"run.name = 5 is an integer", "in quotes"}},
        Mistake{"IntegerForChoice", "kind = \"cosine\"", "kind = 1", {"lr_schedule.kind = 1", "a string"}},
        Mistake{"ArrayForInteger", "seq_len = 32", "seq_len = [32]", {"model.seq_len = [...] is an array"}},
        Mistake{"DateForInteger", "seq_len = 32", "seq_len = 2024-01-01", {"model.seq_len", "a date or time"}},
        Mistake{"ValueForTable", "[run]\nname = \"test\"\nseed = 7", "run = 3", {"run = 3 is an integer", "[run]"}},
        Mistake{"ArrayOfTables", "[log]", "[[log]]", {"log = [...] is an array; it must be a table"}},
        Mistake{"TableForPath", "valid = \"c.bin\"", "valid = {a = 1}", {"data.valid = {...} is a table"}},
        Mistake{"NumberForPath", "[\"a.bin\", \"b.bin\"]", "[\"a.bin\", 3]", {"data.train = 3 is an integer"}}),
    name_of_mistake);

INSTANTIATE_TEST_SUITE_P(
    OutOfRange, ConfigMistake,
    testing::Values(
        Mistake{"Zero", "num_layers = 2", "num_layers = 0", {"model.num_layers = 0", "from 1 to 10000"}},
        Mistake{"Negative", "seed = 7", "seed = -7", {"run.seed = -7", "at least 0"}},
        Mistake{"Overflow", "steps = 100", "steps = 99999999999999999999", {"64 bit"}},
        Mistake{"BinaryOverflow", "steps = 100", "steps = 0b1" + std::string(64, '0'), {"64 bits"}},
        Mistake{"LargerThanIds", "vocab_size = 256", "vocab_size = 3000000000", {"vocab_size = 3000000000"}},
        Mistake{"NegativeRate", "lr = 3e-4", "lr = -3e-4", {"optimizer.lr = -0.0003", "greater than 0"}},
        Mistake{"NotANumber", "lr = 3e-4", "lr = nan", {"optimizer.lr = nan"}},
        Mistake{"Infinite", "max_grad_norm = 1", "max_grad_norm = inf", {"train.max_grad_norm = inf"}},
        Mistake{"BetaOfOne", "beta2 = 0.95", "beta2 = 1", {"optimizer.beta2 = 1", "less than 1"}},
        Mistake{"DropoutOfOne", "dropout = 0.1", "dropout = 1.0", {"model.dropout = 1", "less than 1"}},
        Mistake{"UnknownWord",
                "kind = \"cosine\"",
                "kind = \"cosin\"",
                {"lr_schedule.kind = \"cosin\"", "constant, linear, cosine or wsd", "did you mean \"cosine\"?"}},
        Mistake{"UnknownDtype", "compute = \"fp32\"", "compute = \"fp8\"", {"precision.compute = \"fp8\"", "bf16"}},
        Mistake{"UnknownPreset",
                "[model]",
                "[model]\npreset = \"gpt2-124\"",
                {"model.preset = \"gpt2-124\"", "did you mean \"gpt2-124m\"?"},
                tensor::ExitCode::config,
                1},
        Mistake{"EmptySources", "[\"a.bin\", \"b.bin\"]", "[]", {"data.train is empty"}},
        Mistake{"ZeroWeight",
                "[\"a.bin\", \"b.bin\"]",
                "[{path = \"a.bin\", weight = 0}]",
                {"data.train.weight = 0", "greater than 0"}},
        Mistake{"RunNameWithSlash", "name = \"test\"", "name = \"../test\"", {"run.name = \"../test\"", "letters"}}),
    name_of_mistake);

INSTANTIATE_TEST_SUITE_P(
    Contradictions, ConfigMistake,
    testing::Values(
        Mistake{"HeadsDoNotDivideHidden",
                "num_heads = 4\nnum_kv_heads = 2",
                "num_heads = 6\nnum_kv_heads = 2",
                {"model.num_heads = 6 does not divide model.hidden_size = 64", "use 2, 4, 8 or 16 heads"}},
        Mistake{"KvHeadsDoNotDivideHeads",
                "num_kv_heads = 2",
                "num_kv_heads = 3",
                {"model.num_kv_heads = 3 does not divide model.num_heads = 4", "use 1, 2 or 4"}},
        Mistake{"OddRotaryHead",
                "hidden_size = 64",
                "hidden_size = 64\nhead_dim = 15",
                {"15 wide", "even"},
                tensor::ExitCode::config,
                1},
        Mistake{"ScalingWithoutRope",
                "position = \"rope\"",
                "position = \"learned\"\nrope_scaling = {kind = \"linear\", factor = 2}",
                {"model.position is not \"rope\""},
                tensor::ExitCode::config,
                1},
        Mistake{"FactorWithoutKind", "bias = false", "rope_scaling = {factor = 2}", {"factor = 2 has no effect"}},
        Mistake{"FrequenciesCross",
                "bias = false",
                "rope_scaling = {kind = \"llama3\", factor = 2, low_freq_factor = 4, high_freq_factor = 1}",
                {"low_freq_factor = 4 must be less than high_freq_factor = 1"}},
        Mistake{"RotationsCross",
                "bias = false",
                "rope_scaling = {kind = \"yarn\", factor = 2, beta_slow = 40}",
                {"beta_slow = 40 must be less than beta_fast = 32"}},
        Mistake{"MicroDoesNotDivideGlobal",
                "micro_batch_size = 4",
                "micro_batch_size = 3",
                {"train.micro_batch_size = 3 does not divide train.global_batch_size = 8", "use 1, 2, 4 or 8"}},
        Mistake{"MinLrAboveLr", "min_lr = 3e-5", "min_lr = 1", {"min_lr = 1 is greater than optimizer.lr = 0.0003"}},
        Mistake{"WarmupLongerThanRun", "warmup_steps = 10", "warmup_steps = 101", {"101", "train.steps = 100"}},
        Mistake{"DecayLongerThanRun",
                "warmup_steps = 10",
                "decay_steps = 91\nwarmup_steps = 10",
                {"decay_steps = 91", "use decay_steps = 90 or less"}},
        Mistake{"ConstantThatDecays",
                "kind = \"cosine\"",
                "kind = \"constant\"",
                {"\"constant\"", "min_lr = 3e-05"},
                tensor::ExitCode::config,
                2},
        Mistake{"TwoEvaluationSets",
                "valid = \"c.bin\"",
                "valid = \"c.bin\"\nvalid_fraction = 0.1",
                {"data.valid", "data.valid_fraction = 0.1", "keep one of the two"},
                tensor::ExitCode::config,
                1},
        Mistake{"WeightsForSome",
                "[\"a.bin\", \"b.bin\"]",
                "[{path = \"a.bin\", weight = 0.5}, \"b.bin\"]",
                {"1 of its 2 sources", "to every source, or to none"}},
        Mistake{"SourceWithoutPath", "[\"a.bin\", \"b.bin\"]", "[{weight = 0.5}]", {"source without a path"}},
        Mistake{"SourceWithTypo",
                "[\"a.bin\", \"b.bin\"]",
                "[{path = \"a.bin\", wieght = 0.5}]",
                {"data.train.wieght", "data.train.weight?"}}),
    name_of_mistake);

INSTANTIATE_TEST_SUITE_P(
    Missing, ConfigMistake,
    testing::Values(
        Mistake{
            "VocabSize", "[model]\nvocab_size = 256\n", "[model]\n", {"model.vocab_size is missing", "add vocab_size"}},
        Mistake{"Steps", "[train]\nsteps = 100\n", "[train]\n", {"train.steps is missing", "to [train]"}},
        Mistake{
            "TrainData", "[data]\ntrain = [\"a.bin\", \"b.bin\"]", "[data]", {"data.train is missing", "to [data]"}}),
    name_of_mistake);

INSTANTIATE_TEST_SUITE_P(
    Layouts, ConfigMistake,
    testing::Values(
        Mistake{"Sequence", "tp = 1", "sp = 0", {"parallel.sp = 0", "from 1"}},
        Mistake{"Pipeline", "tp = 1", "pp = 0", {"parallel.pp = 0", "from 1"}},
        Mistake{"Schedule", "tp = 1", "schedule = \"1f1v\"", {"parallel.schedule = \"1f1v\"", "did you mean \"1f1b\""}},
        Mistake{"VirtualStages", "tp = 1", "virtual_stages = -1", {"parallel.virtual_stages = -1", "from 1"}},
        Mistake{"StagesThatAreNoList", "tp = 1", "stages = 2", {"parallel.stages = 2", "an array of integers"}},
        Mistake{"StageOfText", "tp = 1", "stages = [1, \"2\"]", {"parallel.stages", "\"2\""}},
        Mistake{"Expert", "tp = 1", "ep = 4", {"parallel.ep = 4", "has none"}, tensor::ExitCode::layout},
        Mistake{"ExpertTensor", "tp = 1", "expert_tp = 2", {"expert_tp = 2", "has none"}, tensor::ExitCode::layout},
        Mistake{"ZeroStage", "tp = 1", "zero_stage = 4", {"parallel.zero_stage = 4", "from 0 to 3"}},
        Mistake{
            "ZeroReshard", "tp = 1", "zero_reshard = \"always\"", {"parallel.zero_reshard", "forward, never or stage"}},
        Mistake{
            "ReduceEvery", "tp = 1", "reduce_every = \"microbatch\"", {"parallel.reduce_every", "step or micro_batch"}},
        Mistake{"TokensOfTensorParallel", "tp = 1", "tp_sequence = 1", {"parallel.tp_sequence"}},
        Mistake{"OuterDegree", "tp = 1", "dp_out = 0", {"parallel.dp_out = 0", "from 1"}},
        Mistake{"NotAuto", "dp = \"auto\"", "dp = \"all\"", {"parallel.dp = \"all\"", "\"auto\" or"}},
        Mistake{"ZeroDegree", "tp = 1", "tp = 0", {"parallel.tp = 0", "from 1"}}),
    name_of_mistake);

/// In line `line` of [model.moe].
Mistake expert_mistake(const std::string& name, const std::string& keys, int64_t line,
                       const std::vector<std::string>& tells) {
  return {name, "[parallel]", "[model.moe]\n" + keys + "\n[parallel]", tells, tensor::ExitCode::config, line};
}

INSTANTIATE_TEST_SUITE_P(
    Experts, ConfigMistake,
    testing::Values(expert_mistake("TopK", "num_experts = 4\ntop_k = 5", 2, {"top_k = 5 is more than", "use 1 to 4"}),
                    expert_mistake("SameWeights", "num_experts = 4\ntop_k = 1", 2, {"normalize_top_k = false"}),
                    expert_mistake("Layers", "num_experts = 4\nlayers = \"every:0\"", 2, {"\"every:0\"", "every:N"}),
                    expert_mistake("Groups", "num_experts = 4\nnum_groups = 3", 2, {"num_groups = 3", "2"}),
                    expert_mistake("BestGroups", "num_experts = 4\nnum_groups = 2\ntop_k_groups = 3", 3,
                                   {"top_k_groups = 3"}),
                    expert_mistake("ExpertsOfGroups", "num_experts = 8\nnum_groups = 4\ntop_k_groups = 1\ntop_k = 3", 3,
                                   {"top_k = 3", "hold 2 experts"}),
                    expert_mistake("Router", "router = \"relu\"", 1, {"model.moe.router", "softmax or sigmoid"})),
    name_of_mistake);

INSTANTIATE_TEST_SUITE_P(
    Syntax, ConfigMistake,
    testing::Values(
        Mistake{"DuplicateKey",
                "num_layers = 2",
                "num_layers = 2\nnum_layers = 3",
                {"keep one of the two"},
                tensor::ExitCode::config,
                1},
        Mistake{"DuplicateTable", "[log]", "[model]", {"keep one of the two", "[model]"}},
        Mistake{"UnterminatedString", "name = \"test\"", "name = \"test", {"not valid TOML"}},
        Mistake{"UnterminatedTable", "[optimizer]", "[optimizer", {"not valid TOML"}},
        Mistake{"BareWord", "kind = \"cosine\"", "kind = cosine", {"not valid TOML", "kind = cosine", "\"quotes\""}},
        Mistake{"NoValue", "lr = 3e-4", "lr =", {"not valid TOML"}},
        Mistake{"NoEquals", "lr = 3e-4", "lr 3e-4", {"not valid TOML", "lr 3e-4"}},
        Mistake{"ControlByte", "name = \"test\"", "name = \"te\x01st\"", {"byte 0x01", "not text"}},
        Mistake{"BrokenUtf8", "name = \"test\"", "name = \"te\xc3(st\"", {"byte 0xc3", "UTF-8"}},
        Mistake{"DeepArrays", "seq_len = 32", "seq_len = " + std::string(8'000, '['), {"deeper than 16"}},
        Mistake{"DeepTables",
                "[log]",
                "[log" +
                    [] {
                      std::string dots;
                      for (int i = 0; i < 3'000; ++i) dots += ".a";
                      return dots;
                    }() +
                    "]",
                {"deeper than 16"}},
        Mistake{"LongLine", "name = \"test\"", "name = \"" + std::string(9'000, 'x') + '"', {"longer than 8192 bytes"}},
        Mistake{"ManyValues",
                "seq_len = 32",
                "seq_len = [" +
                    [] {
                      std::string values;
                      for (int i = 0; i < 2'100; ++i) values += "1,";
                      return values;
                    }() +
                    "]",
                {"more than 2000 values"}}),
    name_of_mistake);

}  // namespace
}  // namespace trainer
