/// Who sees whom: documents packed in one sequence, the sliding window, causality, other sequences.

#include "tests/model/model_configs.h"
#include "tests/model/test_model.h"

namespace tests {

using tensor::Dtype;

namespace {

/// One sequence of 13 tokens: documents at [0, 4), [4, 5), [5, 13).
model::HostBatch packed_documents(const model::ModelConfig& config) {
  model::HostBatch batch = random_batch(config, 1, 1);
  batch.document_start = {0, 0, 0, 0, 4, 5, 5, 5, 5, 5, 5, 5, 5};
  return batch;
}

/// Token positions whose logits change when the token at `position` does. An unchanged row is so bitwise.
std::vector<size_t> rows_that_see(size_t position, const model::ModelConfig& config, const model::HostBatch& host) {
  TestModel model(config, Dtype::fp32);
  model::HostBatch changed = host;
  changed.tokens[position] = (changed.tokens[position] + 1) % static_cast<int32_t>(config.vocab_size);
  const Values before = model.logits(host), after = model.logits(changed);

  std::vector<size_t> rows;
  const auto vocab_size = static_cast<size_t>(config.vocab_size);
  for (size_t row = 0; row < host.tokens.size(); ++row) {
    const auto begin = static_cast<std::ptrdiff_t>(row * vocab_size), end = begin + std::ptrdiff_t(vocab_size);
    if (!std::equal(before.begin() + begin, before.begin() + end, after.begin() + begin)) rows.push_back(row);
  }
  return rows;
}

}  // namespace

TEST(FirstVisible, IsTheDocumentsStartOrTheWindows) {
  EXPECT_EQ(model::first_visible(9, 2, 0), 2);
  EXPECT_EQ(model::first_visible(9, 2, 3), 7);
  EXPECT_EQ(model::first_visible(9, 2, 1), 9);
  EXPECT_EQ(model::first_visible(9, 8, 3), 8);
  EXPECT_EQ(model::first_visible(1, 0, 5), 0);
}

TEST(Visibility, EndsWithTheDocument) {
  const model::ModelConfig config = llama_config();
  const model::HostBatch documents = packed_documents(config);

  EXPECT_EQ(rows_that_see(1, config, documents), (std::vector<size_t>{1, 2, 3}));
  EXPECT_EQ(rows_that_see(4, config, documents), (std::vector<size_t>{4}));
  EXPECT_EQ(rows_that_see(9, config, documents), (std::vector<size_t>{9, 10, 11, 12}));
}

TEST(Visibility, OfASlidingWindowReachesFartherWithEachLayer) {
  model::ModelConfig config = kitchen_sink_config();
  config.sliding_window = 3;
  config.num_layers = 1;
  EXPECT_EQ(rows_that_see(2, config, random_batch(config, 1, 1)), (std::vector<size_t>{2, 3, 4}));
  config.num_layers = 2;
  EXPECT_EQ(rows_that_see(2, config, random_batch(config, 1, 1)), (std::vector<size_t>{2, 3, 4, 5, 6}));
}

TEST(Visibility, StaysInsideTheSequence) {
  model::ModelConfig config = gpt2_config();
  config.seq_len = 4;

  EXPECT_EQ(rows_that_see(5, config, random_batch(config, 3, 1)), (std::vector<size_t>{5, 6, 7}));
}

TEST(Visibility, MakesAPackedDocumentEqualToOneAlone) {
  const model::ModelConfig config = llama_config();  // RoPE is relative: the document's place does not matter
  TestModel model(config, Dtype::fp64);
  const model::HostBatch packed = packed_documents(config);
  model::HostBatch alone = packed;
  alone.document_start.assign(13, 0);
  std::rotate(alone.tokens.begin(), alone.tokens.begin() + 5, alone.tokens.end());

  const model::MicroBatch packed_batch = model.upload(packed), alone_batch = model.upload(alone);
  const tensor::Tensor packed_logits = model.stage.logits(model.ops, packed_batch);
  const tensor::Tensor alone_logits = model.stage.logits(model.ops, alone_batch);

  EXPECT_LE(relative_error(values_of(packed_logits.rows(5, 13)), values_of(alone_logits.rows(0, 8))), 1e-13);
}

TEST(Visibility, LeavesGradientsOfAnotherDocumentAlone) {
  model::ModelConfig config = llama_config();
  TestModel model(config, Dtype::fp32);
  model::HostBatch documents = packed_documents(config);
  for (size_t i = 0; i < 13; ++i) documents.tokens[i] = static_cast<int32_t>(i);
  for (size_t i = 0; i < 5; ++i) documents.targets[i] = -1;  // only the last document is learned from

  model.run_step({documents});

  const Values gradient = values_of(model.store.at("embedding.token.weight").grad().rows(0, 5));
  EXPECT_EQ(gradient, Values(gradient.size(), 0.0));
}

}  // namespace tests
