#include "trainer/generate.h"

#include <gmock/gmock.h>

#include <numeric>

#include "tests/support/tensors.h"
#include "tests/trainer/tiny_run.h"

namespace trainer {
namespace {

constexpr int64_t kSeqLen = 16;

struct Shape {
  std::string name;
  std::vector<std::string> overrides;
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

/// A model of random weights, large enough that its choices differ.
class GeneratorOf : public testing::TestWithParam<Shape> {
 protected:
  GeneratorOf() : config_(make_config()), learner_(config_, backend_) {}

  Config make_config() const {
    std::vector<std::string> overrides = GetParam().overrides;
    overrides.insert(overrides.end(), {"precision.compute=fp64", "model.init_std=0.4"});
    return data_.config(data_.folder() / "run", std::move(overrides));
  }
  std::vector<int32_t> generate(std::vector<int32_t> prompt, int64_t num_tokens, const SamplingOptions& options = {}) {
    Generator generator(config_.model, learner_.pipeline(), learner_.ops(), config_.precision.compute);
    std::vector<int32_t> ids;
    generator.run(std::move(prompt), num_tokens, options, [&](int32_t id) { ids.push_back(id); });
    return ids;
  }

  /// The same without a cache: all logits of the whole context, again for every token.
  std::vector<int32_t> generate_naively(std::vector<int32_t> text, int64_t num_tokens, const SamplingOptions& options) {
    if (std::ssize(text) > kSeqLen) text.erase(text.begin(), text.end() - kSeqLen);
    std::vector<int32_t> ids;
    for (int64_t index = 0; index < num_tokens; ++index) {
      if (std::ssize(text) > kSeqLen) text.erase(text.begin(), text.end() - kSeqLen / 2);
      text.push_back(sample_token(last_logits(text), options, index));
      ids.push_back(text.back());
    }
    return ids;
  }
  std::vector<double> last_logits(const std::vector<int32_t>& text) {
    std::vector<int32_t> positions(text.size());
    std::iota(positions.begin(), positions.end(), 0);
    const model::HostBatch host{.num_sequences = 1,
                                .tokens = text,
                                .targets = std::vector<int32_t>(text.size(), -1),
                                .positions = positions,
                                .document_start = std::vector<int32_t>(text.size(), 0),
                                .token_index = {positions.begin(), positions.end()}};
    const auto batch = to_device(host, config_.model.sliding_window, {}, *backend_.device);
    const tests::Values all = tests::values_of(learner_.pipeline().stages().front()->logits(learner_.ops(), batch));
    return {all.end() - config_.model.vocab_size, all.end()};
  }

  TinyData data_;
  tensor::Backend backend_ = tiny_backend();
  Config config_;
  LearnerAlone learner_;
};

TEST_P(GeneratorOf, ContinuesAsWithoutACache) {
  const SamplingOptions options{.temperature = 0.8, .seed = 5};

  EXPECT_EQ(generate({3, 1, 4}, 10, options), generate_naively({3, 1, 4}, 10, options));
}

TEST_P(GeneratorOf, GoesOnBeyondTheModelsSeqLen) {
  const SamplingOptions options{.temperature = 1, .seed = 6};

  EXPECT_EQ(generate({9}, 3 * kSeqLen, options), generate_naively({9}, 3 * kSeqLen, options));
}

TEST_P(GeneratorOf, ReadsTheEndOfAPromptThatIsTooLong) {
  std::vector<int32_t> prompt(3 * kSeqLen + 5);
  std::iota(prompt.begin(), prompt.end(), 0);
  for (int32_t& id : prompt) id %= 64;

  EXPECT_EQ(generate(prompt, 4), generate({prompt.end() - kSeqLen, prompt.end()}, 4));
  EXPECT_EQ(generate(prompt, 4), generate_naively(prompt, 4, {}));
}

TEST_P(GeneratorOf, IsAFunctionOfTheSeed) {
  const std::vector<int32_t> first = generate({1, 2}, 20, {.temperature = 2, .seed = 1});

  EXPECT_EQ(generate({1, 2}, 20, {.temperature = 2, .seed = 1}), first);
  EXPECT_NE(generate({1, 2}, 20, {.temperature = 2, .seed = 2}), first);
}

TEST_P(GeneratorOf, StartsAfreshForEveryText) {
  Generator generator(config_.model, learner_.pipeline(), learner_.ops(), config_.precision.compute);
  std::vector<std::vector<int32_t>> texts(2);
  for (auto& ids : texts) generator.run({7, 8}, 20, {}, [&](int32_t id) { ids.push_back(id); });

  EXPECT_EQ(texts[0], texts[1]);
}

INSTANTIATE_TEST_SUITE_P(
    Positions, GeneratorOf,
    testing::Values(Shape{"Rope", {}}, Shape{"Learned", {"model.position=learned"}},
                    Shape{"NoPositions", {"model.position=none"}}, Shape{"Window", {"model.sliding_window=5"}},
                    Shape{"LearnedAndWindow", {"model.position=learned", "model.sliding_window=5"}}),
    [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace trainer
