// What people do with checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/comparison.h"
#include "checkpoint/listing.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verification.h"
#include "tests/checkpoint/sharded_state.h"
#include "tests/support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;

using checkpoint::Comparison;
using checkpoint::DamagedError;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using tests::message_of;
using tests::read_file;
using tests::write_file;

class Tools : public testing::Test {
 protected:
  Tools() { tests::fill_sharded(state_); }

  std::string save(int64_t step, int64_t num_files = 2, const std::string& dir = "a") {
    return tests::save_in_shards(folder_ / dir, step, state_, num_files, rank_.device());
  }
  /// In a tensor's bytes in the last shard.
  static void flip_a_bit(const std::string& folder) {
    const auto index = checkpoint::open_checkpoint(folder).index;
    const checkpoint::StoredFragment& last = index.fragments.back();
    const std::string shard = folder + "/" + index.files[static_cast<size_t>(last.file)].path;
    std::string bytes = read_file(shard);
    bytes[static_cast<size_t>(last.offset)] ^= 1;
    write_file(shard, bytes);
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> all;
    for (const auto& candidate : checkpoint::list_checkpoints(folder_ / "a")) all.push_back(candidate.step);
    return all;
  }

  tests::TemporaryFolder folder_;
  tests::OneRank rank_;
  tests::StateOfARun state_;
};

// ---- list, prune ----

TEST_F(Tools, ListTellsWholeDamagedAndPinnedOnes) {
  write_file(save(10) + "/KEEP", "");
  fs::remove(save(20, 3) + "/shards/000/rank_00002.h5");
  save(30, 3);

  const auto all = checkpoint::list(folder_ / "a");

  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].damage, "");
  EXPECT_TRUE(all[0].is_pinned);
  EXPECT_THAT(all[1].damage, HasSubstr("rank_00002.h5"));
  EXPECT_EQ(all[2].info, tests::run_info(30));
  EXPECT_EQ(all[2].num_files, 3);
  EXPECT_EQ(all[2].num_tensors, 5);
  EXPECT_GT(all[2].bytes, 300 * 64 * 4);
  EXPECT_LT(std::abs(std::difftime(std::time(nullptr), all[2].saved_at)), 600);
  EXPECT_FALSE(all[2].is_pinned);
}

TEST_F(Tools, ListSaysThatThereIsNoFolder) {
  EXPECT_THAT(message_of<tensor::CheckpointError>([&] { checkpoint::list(folder_ / "none"); }),
              HasSubstr("no such folder"));
}

TEST_F(Tools, PruneCountsOnlyWholeOnes) {
  for (const int64_t step : {10, 20, 30, 40}) save(step);
  write_file(save(5) + "/KEEP", "");
  fs::remove(save(50) + "/index.h5");

  const auto deleted = checkpoint::prune(folder_ / "a", {.keep_last = 1, .keep_every = 20});

  EXPECT_THAT(steps(), ElementsAre(5, 20, 40, 50));
  ASSERT_EQ(deleted.size(), 2u);
  EXPECT_EQ(deleted[0].step, 10);
}

TEST_F(Tools, PruneNeverDeletesTheLastWholeOne) {
  save(10);
  fs::remove(save(20) + "/MANIFEST.json");

  checkpoint::prune(folder_ / "a", {.keep_last = 0});

  EXPECT_THAT(steps(), ElementsAre(10, 20));
}

TEST_F(Tools, PruneDoesNotCountOneWithAFlippedBit) {
  for (const int64_t step : {10, 20}) save(step);
  flip_a_bit(save(30));

  checkpoint::prune(folder_ / "a", {.keep_last = 1});

  EXPECT_THAT(steps(), ElementsAre(20, 30));
}

// ---- diff ----

TEST_F(Tools, DiffFindsNoneBetweenLayouts) {
  const Comparison result = checkpoint::compare(save(10, 1, "a"), save(10, 4, "b"));

  EXPECT_TRUE(result.is_equal());
  EXPECT_EQ(result.num_equal, 5);
}

TEST_F(Tools, DiffCountsElementsAndTheLargestDifference) {
  auto* w = state_.at(3).data<float>();
  std::fill(w, w + state_.at(3).numel(), 1.0F);
  const std::string a = save(10, 2, "a");
  w[0] = 1.5F;
  w[19'199] = -1;
  const std::string b = save(10, 3, "b");

  const Comparison result = checkpoint::compare(a, b);

  EXPECT_FALSE(result.is_equal());
  EXPECT_EQ(result.num_equal, 4);
  ASSERT_EQ(result.differences.size(), 1u);
  EXPECT_EQ(result.differences[0].name, "weights/embedding.token.weight");
  EXPECT_EQ(result.differences[0].num_different, 2);
  EXPECT_EQ(result.differences[0].largest, 2);
}

TEST_F(Tools, DiffSeesSignsOfZeroAndNans) {
  state_.at(3).data<float>()[7] = 0.0F;
  const std::string a = save(10, 2, "a");
  state_.at(3).data<float>()[7] = -0.0F;
  const auto zero = checkpoint::compare(a, save(10, 2, "b")).differences;
  state_.at(3).data<float>()[7] = std::numeric_limits<float>::quiet_NaN();
  const auto nan = checkpoint::compare(a, save(10, 2, "c")).differences;

  ASSERT_EQ(zero.size(), 1u);
  EXPECT_EQ(zero[0].largest, 0);
  ASSERT_EQ(nan.size(), 1u);
  EXPECT_EQ(nan[0].num_different, 1);
  EXPECT_EQ(nan[0].largest, std::numeric_limits<double>::infinity());
}

TEST_F(Tools, DiffTellsOtherTensorsShapesAndSteps) {
  const std::string a = save(10);
  tests::StateOfARun other;
  other.add("weights/embedding.token.weight", {300, 65}, tensor::Dtype::fp32);
  other.add("weights/z", {3}, tensor::Dtype::fp32);
  const std::string b = tests::save_in_shards(folder_ / "b", 20, other, 1, rank_.device());

  const Comparison result = checkpoint::compare(a, b);

  EXPECT_EQ(result.num_equal, 0);
  ASSERT_EQ(result.differences.size(), 6u);
  EXPECT_EQ(result.a.progress.step, 10);
  EXPECT_EQ(result.b.progress.step, 20);
  EXPECT_FALSE(result.differences[0].b.has_value());
  EXPECT_FALSE(result.differences[5].a.has_value());
}

// ---- consolidate, rebuild-index ----

TEST_F(Tools, ConsolidateWritesTheFileThatOneRankWouldHaveSaved) {
  const std::string plain = folder_ / "plain.h5", output = folder_ / "output.h5";
  checkpoint::save(plain, tests::run_info(10), state_.named());

  checkpoint::consolidate(save(10, 3), output);

  EXPECT_TRUE(read_file(output) == read_file(plain));
  EXPECT_TRUE(checkpoint::compare(output, folder_ / "a/step_00000010").is_equal());
  EXPECT_THAT(checkpoint::verify(output).damages, IsEmpty());
}

TEST_F(Tools, ConsolidateWritesNothingFromDamage) {
  const std::string output = folder_ / "output.h5";
  flip_a_bit(save(10, 3));

  EXPECT_THROW(checkpoint::consolidate(folder_ / "a/step_00000010", output), DamagedError);
  EXPECT_FALSE(fs::exists(output));
}

TEST_F(Tools, RebuildIndexMakesWhatSavingMade) {
  const std::string folder = rank_.save(folder_ / "a", 10, state_);
  const std::string index = read_file(folder + "/index.h5"), manifest = read_file(folder + "/MANIFEST.json");

  EXPECT_TRUE(checkpoint::rebuild_index(folder).was_whole);
  for (const std::string& name : {std::string("/index.h5"), std::string("/MANIFEST.json")}) {
    fs::remove(folder + name);
    EXPECT_FALSE(checkpoint::rebuild_index(folder).was_whole);
    EXPECT_TRUE(read_file(folder + "/index.h5") == index);
    EXPECT_TRUE(read_file(folder + "/MANIFEST.json") == manifest);
  }
}

TEST_F(Tools, RebuildIndexRefusesMissingAndForeignShards) {
  const std::string folder = save(10, 3), other = save(20, 3), shard = "/shards/000/rank_00001.h5";
  fs::remove(folder + "/index.h5");
  fs::copy_file(other + shard, folder + shard, fs::copy_options::overwrite_existing);
  EXPECT_THAT(message_of<DamagedError>([&] { checkpoint::rebuild_index(folder); }), HasSubstr("of step 20"));

  fs::remove(folder + shard);
  EXPECT_THAT(message_of<DamagedError>([&] { checkpoint::rebuild_index(folder); }), HasSubstr("there are"));
  EXPECT_FALSE(fs::exists(folder + "/index.h5"));

  EXPECT_THROW(checkpoint::rebuild_index(folder_ / "none"), tensor::CheckpointError);
}

}  // namespace
