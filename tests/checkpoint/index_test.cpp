#include "checkpoint/index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>

#include "checkpoint/index_file.h"
#include "checkpoint/manifest.h"
#include "tests/checkpoint/state_of_a_run.h"
#include "tests/support/temporary_folder.h"

namespace {

using checkpoint::DamagedError;
using checkpoint::Index;
using checkpoint::StoredFragment;
using tensor::Dtype;
using testing::HasSubstr;
using tests::message_of;
using tests::TemporaryFolder;

/// Two tensors in two files: a matrix cut by columns, one of them in two ranges, and a vector in three ranges.
Index sample_index() {
  Index index{.info = tests::run_info(),
              .tensors = {{"exp_avg/a", Dtype::fp64, {6, 4}}, {"weights/b", Dtype::bf16, {9}}},
              .files = {{"shards/000/rank_00000.h5", 5000}, {"shards/000/rank_00001.h5", 6000}},
              .fragments = {},
              .block_hashes = {}};
  const auto add = [&](int64_t tensor, checkpoint::Box box, parallel::Range range, int64_t file, int64_t offset) {
    index.fragments.push_back({.fragment = {.tensor = tensor, .box = box, .range = range},
                               .file = file,
                               .offset = offset,
                               .first_block = std::ssize(index.block_hashes)});
    index.block_hashes.push_back(0xfedcba9876543210u + index.block_hashes.size());
  };
  add(0, {0, 6, 0, 1}, {0, 6}, 0, 2048);
  add(0, {0, 6, 1, 3}, {0, 7}, 0, 2200);
  add(0, {0, 6, 1, 3}, {7, 18}, 1, 2048);
  add(1, {0, 9, 0, 1}, {0, 4}, 0, 4000);
  add(1, {0, 9, 0, 1}, {4, 5}, 1, 4000);
  add(1, {5, 4, 0, 1}, {0, 4}, 1, 4008);
  return index;
}

std::string complaint_about(const Index& index) {
  return message_of<DamagedError>([&] { checkpoint::check_index(index, "there"); });
}

void expect_same(const Index& a, const Index& b) {
  EXPECT_EQ(a.info, b.info);
  EXPECT_EQ(checkpoint::encode_numbers(a), checkpoint::encode_numbers(b));
  EXPECT_EQ(checkpoint::encode_text(a), checkpoint::encode_text(b));
}

TEST(Index, HasEveryElementOnce) { EXPECT_EQ(complaint_about(sample_index()), ""); }

TEST(Index, IsRefusedWhereAFragmentLiesElsewhere) {
  const std::vector<std::function<void(StoredFragment&)>> changes = {
      [](auto& f) { f.fragment.tensor = 2; },
      [](auto& f) { f.fragment.tensor = -1; },
      [](auto& f) { f.file = 2; },
      [](auto& f) { f.file = -1; },
      [](auto& f) { f.offset = 5999; },
      [](auto& f) { f.offset = -1; },
      [](auto& f) { f.offset = INT64_MAX; },
      [](auto& f) { f.first_block = 6; },
      [](auto& f) { f.first_block = -1; },
      [](auto& f) { f.fragment.range.end = INT64_MAX; },
      [](auto& f) { f.fragment.range.begin = -1; },
      [](auto& f) {
        f.fragment.range = {3, 2};
      },
      [](auto& f) { f.fragment.box.num_rows = 7; },
      [](auto& f) { f.fragment.box.first_row = 1; },
      [](auto& f) { f.fragment.box.num_columns = 4; },
      [](auto& f) { f.fragment.box.first_column = INT64_MAX; },
      [](auto& f) { f.fragment.box.num_rows = INT64_MAX; },
      [](auto& f) {
        f.fragment.range = {INT64_MIN, INT64_MAX};
      }};
  for (size_t i = 0; i < changes.size(); ++i) {
    Index index = sample_index();
    changes[i](index.fragments[2]);
    EXPECT_THAT(complaint_about(index), HasSubstr("there: this checkpoint is damaged")) << "change " << i;
  }
}

TEST(Index, IsRefusedWhereElementsAreMissing) {
  for (size_t i = 0; i < sample_index().fragments.size(); ++i) {
    Index index = sample_index();
    index.fragments.erase(index.fragments.begin() + static_cast<int64_t>(i));
    EXPECT_THAT(complaint_about(index), HasSubstr("there are")) << "without fragment " << i;
  }
}

TEST(Index, IsRefusedWhereElementsAreThereTwiceAndAsManyAreMissing) {
  Index index = sample_index();
  index.fragments[4].fragment.range = {3, 4};
  EXPECT_THAT(complaint_about(index), HasSubstr("\"weights/b\" has elements twice"));

  index = sample_index();
  index.fragments[0].fragment.box.first_column = 1;
  EXPECT_THAT(complaint_about(index), HasSubstr("\"exp_avg/a\" has elements twice"));
}

/// A matrix cut at random, then one fragment replaced by one of as many elements elsewhere.
TEST(Index, FindsEveryOverlapThatANaiveCountFinds) {
  std::mt19937_64 random(2);
  int num_overlaps = 0;
  for (int trial = 0; trial < 3'000; ++trial) {
    Index index{.info = {},
                .tensors = {{"weights/w", Dtype::fp32, {8, 6}}},
                .files = {{"f", 1 << 20}},
                .fragments = {},
                .block_hashes = {0}};
    const int64_t cut = 1 + static_cast<int64_t>(random() % 5);
    for (const checkpoint::Box box : {checkpoint::Box{0, 8, 0, cut}, checkpoint::Box{0, 8, cut, 6 - cut}}) {
      for (int64_t begin = 0; begin < box.numel();) {
        const int64_t end = std::min(box.numel(), begin + 1 + static_cast<int64_t>(random() % 5));
        index.fragments.push_back({.fragment = {.tensor = 0, .box = box, .range = {begin, end}}});
        begin = end;
      }
    }
    checkpoint::Fragment& moved = index.fragments[random() % index.fragments.size()].fragment;
    const int64_t count = moved.range.size();
    if (random() % 2 == 0) moved.box = {0, 8, 0, 6};
    moved.range.begin = static_cast<int64_t>(random() % static_cast<uint64_t>(moved.box.numel() - count + 1));
    moved.range.end = moved.range.begin + count;
    std::shuffle(index.fragments.begin(), index.fragments.end(), random);

    std::vector<int> times(48, 0);
    for (const StoredFragment& stored : index.fragments) {
      const checkpoint::Fragment& f = stored.fragment;
      for (int64_t i = f.range.begin; i < f.range.end; ++i) {
        const int64_t row = f.box.first_row + i / f.box.num_columns,
                      column = f.box.first_column + i % f.box.num_columns;
        ++times[static_cast<size_t>(row * 6 + column)];
      }
    }
    const bool is_covered = std::all_of(times.begin(), times.end(), [](int n) { return n == 1; });
    ASSERT_EQ(complaint_about(index).empty(), is_covered) << "trial " << trial;
    num_overlaps += is_covered ? 0 : 1;
  }
  EXPECT_GT(num_overlaps, 1'000);
}

TEST(Index, IsTheSameOnTheWireAndInAFile) {
  const TemporaryFolder folder;
  const Index index = sample_index();

  expect_same(checkpoint::decode_index(checkpoint::encode_numbers(index), checkpoint::encode_text(index)), index);
  checkpoint::write_index(folder / "index.h5", index);
  expect_same(checkpoint::read_index(checkpoint::InputFile(folder / "index.h5")), index);
}

TEST(Manifest, NamesWhatIsThere) {
  const TemporaryFolder folder;
  Index index = sample_index();
  std::filesystem::create_directories(folder / "shards/000");
  for (checkpoint::ShardFile& file : index.files) tests::write_file(folder / file.path, std::string(100, 'x'));
  for (checkpoint::ShardFile& file : index.files) file.bytes = 100;
  tests::write_file(folder / "index.h5", "index");
  checkpoint::write_manifest(folder.path(), index);

  const checkpoint::Manifest manifest = checkpoint::read_manifest(folder.path());

  EXPECT_EQ(manifest.step, 100);
  EXPECT_EQ(manifest.index_bytes, 5);
  ASSERT_EQ(manifest.files.size(), 2u);
  EXPECT_EQ(manifest.files[1].path, "shards/000/rank_00001.h5");
  EXPECT_EQ(manifest.files[1].bytes, 100);
}

TEST(Manifest, IsRefusedWhereAnyOfItsBytesChanged) {
  const TemporaryFolder folder;
  tests::write_file(folder / "index.h5", "index");
  const Index empty{.info = tests::run_info(), .tensors = {}, .files = {}, .fragments = {}, .block_hashes = {}};
  checkpoint::write_manifest(folder.path(), empty);
  const std::string path = folder / "MANIFEST.json", whole = tests::read_file(path);

  for (size_t i = 0; i + 1 < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] ^= 1;
    tests::write_file(path, changed);
    try {
      const checkpoint::Manifest manifest = checkpoint::read_manifest(folder.path());
      EXPECT_TRUE(std::isspace(static_cast<unsigned char>(whole[i]))) << "byte " << i << " of " << whole;
      EXPECT_EQ(manifest.step, 100);
    } catch (const DamagedError&) {  // and nothing else: an older checkpoint can take its place
    }
  }
}

}  // namespace
