/// Bytes of model state on each rank, by category, for n parameters on this rank and G ranks that ZeRO cuts over:
///
///   stage   parameters    gradients   optimizer (fp32: 8 bytes, bf16: 12 with the master weights)
///   0       w n           4 n         o n
///   1       w n           4 n         o n / G
///   2       w n           4 n / G     o n / G
///   3       w n / G       4 n / G     o n / G
///
/// Cuts are at whole rows and buffers are rounded up to cache lines: that is the padding below.

#include "tests/trainer/ranks/learner_fixture.h"

namespace tests {

using tensor::MemoryCategory;

namespace {

/// Large enough that padding is a few percent.
const Settings kLarger = {"model.num_layers=4",        "model.hidden_size=64", "model.vocab_size=259",
                          "model.ffn_hidden_size=128", "model.dropout=0",      "train.steps=2"};
constexpr int64_t kLongestRow = 128;

struct StateBytes {
  double parameters, gradients, optimizer;
};

StateBytes expected_bytes(int64_t stage, int64_t n, int64_t group, bool is_bf16) {
  const auto of = [&](double bytes, bool is_cut) {
    return bytes * static_cast<double>(n) / static_cast<double>(is_cut ? group : 1);
  };
  return {of(is_bf16 ? 2 : 4, stage >= 3), of(4, stage >= 2), of(is_bf16 ? 12 : 8, stage >= 1)};
}

std::vector<int64_t> sizes_of_units(const parallel::ParameterStore& store) {
  std::vector<int64_t> sizes;
  for (const auto& unit : store.units()) sizes.push_back(unit->numel);
  std::sort(sizes.rbegin(), sizes.rend());
  return sizes;
}

}  // namespace

class StateMemory : public LearnerRanksTest {
 protected:
  static void expect_bytes(const LearnerOnRanks& run, MemoryCategory category, double expected, int64_t num_units) {
    const auto padding = static_cast<double>(num_units * (12 * kLongestRow + 3 * tensor::Pool::kAlignment));
    EXPECT_NEAR(static_cast<double>(run.memory(category).live_bytes), expected, padding) << to_string(category);
  }
};

TEST_F(StateMemory, IsWhatTheStageSays) {
  for (const Settings& layout : layouts_that_cut()) {
    for (const std::string compute : {"fp32", "bf16"}) {
      for (const int stage : {0, 1, 2, 3}) {
        const Settings settings =
            kLarger + layout + Settings{fmt::format("parallel.zero_stage={}", stage), "precision.compute=" + compute};
        SCOPED_TRACE(describe(settings));
        const auto run = make(settings);
        run->train(1);

        const int64_t group = run->context().group(parallel::Group::zero).size();
        const int64_t num_units = std::ssize(run->store().units());
        const StateBytes expected = expected_bytes(stage, run->store().stored_numel(), group, compute == "bf16");
        expect_bytes(*run, MemoryCategory::parameters, expected.parameters, num_units);
        expect_bytes(*run, MemoryCategory::gradients, expected.gradients, num_units);
        expect_bytes(*run, MemoryCategory::optimizer, expected.optimizer, num_units);
      }
    }
  }
}

/// On top of what is kept, in the middle of a step: whole gradients of two units (one in reduction, one written) and of
/// the tied table, from the head's pass to the embedding's, and two cuts that arrive; whole values of at most three (in
/// use, next, and the head's).
TEST_F(StateMemory, PeaksAFewUnitsAboveWhatIsKept) {
  for (const int stage : {2, 3}) {
    const auto run = make(kLarger + Settings{fmt::format("parallel.zero_stage={}", stage), "train.micro_batch_size=1"});
    run->train(1);
    run->reset_peaks();
    run->train(2);

    const std::vector<int64_t> sizes = sizes_of_units(run->store());
    const int64_t padding = 10 * tensor::Pool::kAlignment;
    const auto above = [&](MemoryCategory category) {
      const tensor::MemoryUse use = run->memory(category);
      return use.peak_bytes - use.live_bytes;
    };
    const int64_t whole = 2 * sizes[0] + run->store().units().front()->numel;
    const int64_t cuts = 2 * (sizes[0] / size() + kLongestRow);
    EXPECT_LE(above(MemoryCategory::gradients), 4 * (whole + cuts) + padding) << stage;
    const int64_t gathered = stage == 3 ? 4 * (sizes[0] + sizes[1] + sizes[2]) : 0;
    EXPECT_LE(above(MemoryCategory::parameters), gathered + padding) << stage;
    EXPECT_EQ(above(MemoryCategory::optimizer), 0) << stage;
  }
}

}  // namespace tests
