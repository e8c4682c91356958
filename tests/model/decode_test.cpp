/// Generation with a key and value cache gives the logits of the whole sequence, however the prompt is cut.

#include "tests/model/model_configs.h"
#include "tests/model/test_model.h"

namespace tests {

using tensor::Dtype;

class Decode : public testing::TestWithParam<int64_t> {};

TEST_P(Decode, GivesTheLogitsOfTheWholeSequence) {
  for (const model::ModelConfig& config : {gpt2_config(), llama_config(), kitchen_sink_config()}) {
    TestModel model(config, Dtype::fp64);
    const model::HostBatch sequence = random_batch(config, 1, 1);
    const model::MicroBatch whole = model.upload(sequence);
    const tensor::Tensor expected = model.stage.logits(model.ops, whole);
    model::KvCache cache = model.stage.make_cache(config.seq_len, Dtype::fp64, *model.backend.device);

    for (int64_t begin = 0; begin < config.seq_len; begin += GetParam()) {
      const int64_t end = std::min(config.seq_len, begin + GetParam());
      const model::MicroBatch chunk = model.upload(tokens_of(sequence, begin, end));
      const tensor::Tensor logits = model.stage.decode(model.ops, chunk, {}, cache);

      EXPECT_EQ(cache.length, end);
      EXPECT_LE(relative_error(values_of(logits), values_of(expected.rows(end - 1, end))), 1e-13)
          << "token " << end - 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ChunkSizes, Decode, testing::Values(1, 3, 13));

TEST(Decode, RefusesMoreTokensThanTheCacheHolds) {
  const model::ModelConfig config = llama_config();
  TestModel model(config, Dtype::fp32);
  model::KvCache cache = model.stage.make_cache(4, Dtype::fp32, *model.backend.device);
  const model::MicroBatch prompt = model.upload(tokens_of(random_batch(config, 1, 1), 0, 5));

  EXPECT_THROW(model.stage.decode(model.ops, prompt, {}, cache), tensor::InternalError);
}

TEST(Decode, RefusesPositionsThatTheModelDoesNotKnow) {
  model::ModelConfig config = llama_config();
  const model::HostBatch sequence = random_batch(config, 1, 1);
  for (const model::Position position : {model::Position::rope, model::Position::none}) {
    config.position = position;
    TestModel model(config, Dtype::fp32);
    model::KvCache cache = model.stage.make_cache(14, Dtype::fp32, *model.backend.device);
    const model::MicroBatch known = model.upload(sequence), one_more = model.upload(tokens_of(sequence, 12, 13));

    model.stage.decode(model.ops, known, {}, cache);

    if (position == model::Position::none) {
      EXPECT_NO_THROW(model.stage.decode(model.ops, one_more, {}, cache));
    } else {
      EXPECT_THROW(model.stage.decode(model.ops, one_more, {}, cache), tensor::InternalError);
    }
  }
}

}  // namespace tests
