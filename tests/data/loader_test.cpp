#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

#include "tensor/error.h"
#include "tests/data/temp_folder.h"

using data::Batch;
using data::DataConfig;
using data::Dataset;
using data::Loader;
using data::LoaderOptions;
using tests::TempFolder;

namespace {

class LoaderTest : public testing::Test {
 protected:
  Dataset open(int64_t vocab_size = 0) {
    std::vector<uint16_t> ids(401);
    std::iota(ids.begin(), ids.end(), 0);
    return Dataset::open_train({.train = {{.path = folder_.write("a.bin", ids)}}},
                               {.seq_len = 4, .vocab_size = vocab_size, .seed = 1});
  }
  TempFolder folder_;
};

std::vector<int32_t> take(const Dataset& dataset, const LoaderOptions& options, int num_batches) {
  Loader loader(dataset, options);
  std::vector<int32_t> tokens;
  for (int i = 0; i < num_batches; ++i) {
    const Batch batch = loader.next();
    tokens.insert(tokens.end(), batch.tokens.begin(), batch.tokens.end());
  }
  return tokens;
}

}  // namespace

TEST_F(LoaderTest, GivesTheSameBatchesWhateverThePrefetch) {
  const Dataset dataset = open();
  const auto expected = data::read_batch(dataset, 6, 30).tokens;
  for (const int64_t prefetch : {1, 2, 7})
    EXPECT_EQ(
        take(dataset, {.first_sample = 6, .global_batch_size = 3, .slice_end = 3, .prefetch_batches = prefetch}, 10),
        expected);
}

TEST_F(LoaderTest, SlicesOfRanksMakeUpTheGlobalBatch) {
  const Dataset dataset = open();
  Loader whole(dataset, {.global_batch_size = 5, .slice_end = 5});
  Loader first(dataset, {.global_batch_size = 5, .slice_end = 2});
  Loader second(dataset, {.global_batch_size = 5, .slice_begin = 2, .slice_end = 5});
  for (int step = 0; step < 4; ++step) {
    auto tokens = first.next().tokens;
    const Batch rest = second.next();
    EXPECT_EQ(rest.first_sample, 5 * step + 2);
    EXPECT_EQ(rest.num_sequences, 3);
    tokens.insert(tokens.end(), rest.tokens.begin(), rest.tokens.end());
    EXPECT_EQ(whole.next().tokens, tokens);
  }
}

TEST_F(LoaderTest, ContinuesWhereASecondRunResumes) {
  const Dataset dataset = open();
  auto tokens = take(dataset, {.global_batch_size = 4, .slice_end = 4}, 3);
  const auto rest = take(dataset, {.first_sample = 12, .global_batch_size = 2, .slice_end = 2}, 4);
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  EXPECT_EQ(tokens, take(dataset, {.global_batch_size = 4, .slice_end = 4}, 5));
}

TEST_F(LoaderTest, RethrowsErrorsAfterTheGoodBatches) {
  const Dataset dataset = open(/*vocab_size=*/300);  // ids go up to 400
  Loader loader(dataset, {.global_batch_size = 1, .slice_end = 1, .prefetch_batches = 4});
  int64_t num_good = 0;
  try {
    for (;; ++num_good) loader.next();
  } catch (const tensor::DataError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("but ids must be in [0, 300)"));
  }
  EXPECT_NO_THROW(data::read_batch(dataset, 0, num_good));
  EXPECT_THROW(data::read_batch(dataset, num_good, 1), tensor::DataError);
  EXPECT_THROW(loader.next(), tensor::DataError);
}

TEST_F(LoaderTest, NoticesAChangedFile) {
  const Dataset dataset = open();
  open();  // writes the file again
  std::filesystem::last_write_time(folder_.path("a.bin"),
                                   std::filesystem::file_time_type::clock::now() + std::chrono::seconds(9));
  Loader loader(dataset, {});
  EXPECT_THROW(loader.next(), tensor::DataError);
}

TEST_F(LoaderTest, StopsAtOnceInAnyState) {
  const Dataset dataset = open();
  for (int i = 0; i < 100; ++i) {
    Loader loader(dataset, {.global_batch_size = 8, .slice_end = 8, .prefetch_batches = 1 + i % 3});
    if (i % 2) loader.next();
  }
}

TEST_F(LoaderTest, EndsAfterNumBatches) {
  const Dataset dataset = open();
  Loader loader(dataset, {.num_batches = 2});
  loader.next();
  loader.next();
  EXPECT_THROW(loader.next(), tensor::InternalError);
}

TEST_F(LoaderTest, LoadsAnEmptySlice) {
  const Dataset dataset = open();
  Loader loader(dataset, {.global_batch_size = 2, .slice_begin = 1, .slice_end = 1});
  const Batch batch = loader.next();
  EXPECT_EQ(batch.num_sequences, 0);
  EXPECT_EQ(batch.num_valid_targets, 0);
  EXPECT_TRUE(batch.tokens.empty());
}
