#include "data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "data/loader.h"
#include "tensor/error.h"
#include "tests/data/temp_folder.h"

using data::DataConfig;
using data::Dataset;
using data::kIgnoredTarget;
using data::read_batch;
using tests::TempFolder;

namespace {

std::string write_counting(const TempFolder& folder, const std::string& name, int64_t count, int first = 0) {
  std::vector<uint16_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return folder.write(name, ids);
}

std::vector<int32_t> tokens_of(const Dataset& dataset, int64_t sample) { return read_batch(dataset, sample, 1).tokens; }

}  // namespace

TEST(Dataset, CutsTheTokenStreamIntoSamples) {
  const TempFolder folder;
  const DataConfig config{.train = {}, .valid = {write_counting(folder, "v.bin", 13)}};
  const Dataset dataset = *Dataset::open_valid(config, {.seq_len = 4});

  ASSERT_EQ(dataset.num_samples(), 3);
  for (int64_t n = 0; n < 3; ++n) {
    const auto batch = read_batch(dataset, n, 1);
    const int first = 4 * static_cast<int>(n);
    EXPECT_EQ(batch.tokens, (std::vector<int32_t>{first, first + 1, first + 2, first + 3}));
    EXPECT_EQ(batch.targets, (std::vector<int32_t>{first + 1, first + 2, first + 3, first + 4}));
    EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 2, 3}));
    EXPECT_EQ(batch.document_start, (std::vector<int32_t>{0, 0, 0, 0}));
    EXPECT_EQ(batch.num_valid_targets, 4);
  }
}

TEST(Dataset, NeedsOneTokenMoreThanItsSamples) {
  const TempFolder folder;
  for (const auto& [num_tokens, num_samples] : {std::pair(5, 1), std::pair(8, 1), std::pair(9, 2)}) {
    const DataConfig config{.train = {{.path = write_counting(folder, "t.bin", num_tokens)}}};
    EXPECT_EQ(Dataset::open_train(config, {.seq_len = 4}).num_samples(), num_samples) << num_tokens;
  }
}

TEST(Dataset, VisitsEverySampleOncePerEpochOverAllFiles) {
  const TempFolder folder;
  const DataConfig config{
      .train = {{.path = write_counting(folder, "a.bin", 41)}, {.path = write_counting(folder, "b.bin", 21, 1000)}}};
  const Dataset dataset = Dataset::open_train(config, {.seq_len = 4, .seed = 3});
  ASSERT_EQ(dataset.num_samples(), 15);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int32_t> firsts;
    for (int64_t n = 0; n < 15; ++n) firsts.insert(tokens_of(dataset, 15 * epoch + n)[0]);
    EXPECT_EQ(firsts.size(), 15u);
  }
}

TEST(Dataset, KeepsTheValidFractionOutOfTraining) {
  const TempFolder folder;
  const DataConfig config{.train = {{.path = write_counting(folder, "a.bin", 401)}}, .valid_fraction = 0.1};
  const Dataset train = Dataset::open_train(config, {.seq_len = 4});
  const Dataset valid = *Dataset::open_valid(config, {.seq_len = 4});

  EXPECT_EQ(train.num_samples(), 90);
  EXPECT_EQ(valid.num_samples(), 10);
  std::set<int32_t> train_targets, valid_targets;
  for (const auto& [dataset, targets] : {std::pair(&train, &train_targets), std::pair(&valid, &valid_targets)})
    for (const int32_t target : read_batch(*dataset, 0, dataset->num_samples()).targets) targets->insert(target);
  EXPECT_EQ(train_targets.size(), 360u);
  EXPECT_EQ(*train_targets.rbegin(), 360);
  EXPECT_EQ(*valid_targets.begin(), 361);
  EXPECT_EQ(tokens_of(valid, 0), (std::vector<int32_t>{360, 361, 362, 363}));
}

TEST(Dataset, EvaluatesOnNothingUnlessTold) {
  const TempFolder folder;
  const DataConfig config{.train = {{.path = write_counting(folder, "a.bin", 401)}}};
  EXPECT_FALSE(Dataset::open_valid(config, {.seq_len = 4}));
}

TEST(Dataset, PrefersValidFilesToTheFraction) {
  const TempFolder folder;
  const DataConfig config{.train = {{.path = write_counting(folder, "a.bin", 401)}},
                          .valid = {write_counting(folder, "v.bin", 9)},
                          .valid_fraction = 0.5};
  EXPECT_EQ(Dataset::open_train(config, {.seq_len = 4}).num_samples(), 100);
  EXPECT_EQ(Dataset::open_valid(config, {.seq_len = 4})->num_samples(), 2);
}

TEST(Dataset, MasksDocumentsOfAnIndex) {
  const TempFolder folder;
  folder.write("x.idx", tests::IndexParts({2, 5, 1, 3}).text());  // documents begin at 0, 2, 7, 8
  std::vector<uint16_t> ids(11);
  std::iota(ids.begin(), ids.end(), 0);
  folder.write("x.bin", ids);
  DataConfig config{.valid = {folder.path("x")}, .document_mask = true};
  const Dataset dataset = *Dataset::open_valid(config, {.seq_len = 5});

  const auto first = read_batch(dataset, 0, 1), second = read_batch(dataset, 1, 1);

  EXPECT_EQ(first.document_start, (std::vector<int32_t>{0, 0, 2, 2, 2}));
  EXPECT_EQ(first.targets, (std::vector<int32_t>{1, kIgnoredTarget, 3, 4, 5}));
  EXPECT_EQ(first.positions, (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(first.num_valid_targets, 4);
  EXPECT_EQ(second.document_start, (std::vector<int32_t>{0, 0, 2, 3, 3}));
  EXPECT_EQ(second.targets, (std::vector<int32_t>{6, kIgnoredTarget, kIgnoredTarget, 9, 10}));
  EXPECT_EQ(second.num_valid_targets, 3);
}

TEST(Dataset, IgnoresALastTargetThatBeginsADocument) {
  const TempFolder folder;
  const DataConfig config{
      .valid = {folder.write("a.bin", std::vector<uint16_t>{5, 6, 0, 7, 8})}, .document_mask = true, .eod_id = 0};
  const auto batch = read_batch(*Dataset::open_valid(config, {.seq_len = 3}), 0, 1);

  EXPECT_EQ(batch.targets, (std::vector<int32_t>{6, 0, kIgnoredTarget}));
  EXPECT_EQ(batch.document_start, (std::vector<int32_t>{0, 0, 0}));
}

TEST(Dataset, ChecksIdsInTargetsToo) {
  const TempFolder folder;
  const DataConfig config{.valid = {folder.write("a.bin", std::vector<uint16_t>{1, 2, 3, 4, 99})}};
  const Dataset dataset = *Dataset::open_valid(config, {.seq_len = 4, .vocab_size = 50});
  EXPECT_THROW(read_batch(dataset, 0, 1), tensor::DataError);
}

TEST(Dataset, DescribesWhatItsOrderDependsOn) {
  const TempFolder folder;
  DataConfig config{.train = {{.path = write_counting(folder, "a.bin", 41)}}};
  const std::string text = Dataset::open_train(config, {.seq_len = 4}).description();
  EXPECT_EQ(Dataset::open_train(config, {.seq_len = 4, .seed = 9}).description(), text);
  EXPECT_NE(Dataset::open_train(config, {.seq_len = 5}).description(), text);
  config.valid_fraction = 0.2;
  EXPECT_NE(Dataset::open_train(config, {.seq_len = 4}).description(), text);
}

TEST(Dataset, RefusesSettingsThatLeaveNothingToTrainOn) {
  const TempFolder folder;
  const auto path = write_counting(folder, "a.bin", 5);
  EXPECT_THROW(Dataset::open_train({}, {.seq_len = 4}), tensor::ConfigError);
  EXPECT_THROW(Dataset::open_train({.train = {{.path = path}}}, {.seq_len = 0}), tensor::ConfigError);
  EXPECT_THROW(Dataset::open_train({.train = {{.path = path}}, .valid_fraction = 1}, {.seq_len = 4}),
               tensor::ConfigError);
  EXPECT_THROW(Dataset::open_train({.train = {{.path = path}}, .valid_fraction = 0.1}, {.seq_len = 4}),
               tensor::DataError);
}
