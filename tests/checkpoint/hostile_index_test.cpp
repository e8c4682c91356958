// Folders that pass for checkpoints, with a manifest that fits, and an index that we never write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

#include <functional>

#include "checkpoint/hdf5.h"
#include "checkpoint/index_file.h"
#include "checkpoint/manifest.h"
#include "tests/checkpoint/sharded_state.h"
#include "tests/support/temporary_folder.h"

namespace {

using checkpoint::DamagedError;
using checkpoint::Index;
using checkpoint::hdf5::Handle;
using testing::HasSubstr;
using tests::message_of;

class HostileIndex : public testing::Test {
 protected:
  HostileIndex() {
    tests::fill_sharded(state_);
    path_ = tests::save_in_shards(folder_.path(), 10, state_, 2, rank_.device());
  }

  std::string resume() {
    return message_of<DamagedError>([&] { rank_.resume_from(path_, state_); });
  }

  /// What resuming says after `change` worked in the file, with a manifest of the new one.
  std::string resume_after(const std::function<void(hid_t)>& change) {
    const Index index = checkpoint::open_checkpoint(path_).index;
    {
      const Handle access = checkpoint::hdf5::file_access();
      const Handle file(H5Fopen((path_ + "/index.h5").c_str(), H5F_ACC_RDWR, access.id()), H5Fclose);
      EXPECT_TRUE(file);
      change(file.id());
    }
    checkpoint::write_manifest(path_, index);
    return resume();
  }

  /// What resuming says where the index is another one, whole in itself.
  std::string resume_from_index(const std::function<void(Index&)>& change) {
    Index index = checkpoint::open_checkpoint(path_).index;
    change(index);
    checkpoint::write_index(path_ + "/index.h5", index);
    checkpoint::write_manifest(path_, index);
    return resume();
  }

  static void replace_table(hid_t file, hid_t type, const std::vector<hsize_t>& sizes, hid_t creation = H5P_DEFAULT) {
    H5Ldelete(file, "_tables/fragments", H5P_DEFAULT);
    const Handle space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr), H5Sclose);
    const Handle dataset(H5Dcreate2(file, "_tables/fragments", type, space.id(), H5P_DEFAULT, creation, H5P_DEFAULT),
                         H5Dclose);
    EXPECT_TRUE(dataset);
  }

  tests::TemporaryFolder folder_;
  tests::OneRank rank_;
  tests::StateOfARun state_;
  std::string path_;
};

TEST_F(HostileIndex, IsGoodBefore) { EXPECT_EQ(resume(), ""); }

TEST_F(HostileIndex, IsRefusedForSoftAndExternalLinks) {
  for (const char* name : {"_tables/fragments", "_tables/tensors.json", "_tables", "config.toml"}) {
    EXPECT_THAT(resume_after([&](hid_t file) {
                  H5Lmove(file, name, file, "other", H5P_DEFAULT, H5P_DEFAULT);
                  H5Lcreate_soft("/other", file, name, H5P_DEFAULT, H5P_DEFAULT);
                }),
                HasSubstr("lacks"))
        << name;
    H5Eclear2(H5E_DEFAULT);
    std::filesystem::remove(path_ + "/MANIFEST.json");
    checkpoint::rebuild_index(path_);
  }
  const std::string copy = folder_ / "copy.h5";
  tests::write_file(copy, tests::read_file(path_ + "/index.h5"));
  EXPECT_THAT(resume_after([&](hid_t file) {
                H5Ldelete(file, "_tables/fragments", H5P_DEFAULT);
                H5Lcreate_external(copy.c_str(), "/_tables/fragments", file, "_tables/fragments", H5P_DEFAULT,
                                   H5P_DEFAULT);
              }),
              HasSubstr("lacks"));
}

TEST_F(HostileIndex, IsRefusedForTablesOfOtherTypesAndSizes) {
  const std::vector<std::pair<hid_t, std::vector<hsize_t>>> tables = {
      {H5T_STD_I32LE, {10, 10}},    {H5T_STD_I64BE, {10, 10}},
      {H5T_IEEE_F64LE, {10, 10}},   {H5T_STD_I64LE, {10, 9}},
      {H5T_STD_I64LE, {100}},       {H5T_STD_I64LE, {}},
      {H5T_STD_I64LE, {1, 10, 10}}, {H5T_STD_I64LE, {hsize_t{1} << 40, 10}}};
  for (size_t i = 0; i < tables.size(); ++i) {
    EXPECT_THAT(resume_after([&](hid_t file) { replace_table(file, tables[i].first, tables[i].second); }),
                HasSubstr("is no table of 10 columns"))
        << i;
    std::filesystem::remove(path_ + "/MANIFEST.json");
    checkpoint::rebuild_index(path_);
  }
}

TEST_F(HostileIndex, IsRefusedForTablesThatLieElsewhere) {
  EXPECT_THAT(resume_after([](hid_t file) {
                replace_table(file, H5T_STD_I64LE, {1 << 20, 10});
              }),
              HasSubstr("damaged"));  // late allocation: nothing behind it
}

TEST_F(HostileIndex, IsRefusedForChunkedTables) {
  const Handle creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  const hsize_t chunk[] = {2, 10};
  H5Pset_chunk(creation.id(), 2, chunk);
  H5Pset_deflate(creation.id(), 1);

  EXPECT_THAT(resume_after([&](hid_t file) {
                replace_table(file, H5T_STD_I64LE, {10, 10}, creation.id());
              }),
              HasSubstr("plain piece"));
}

TEST_F(HostileIndex, IsRefusedForNumbersThatWereChanged) {
  EXPECT_THAT(resume_after([](hid_t file) {
                const Handle step(H5Aopen(file, "samples", H5P_DEFAULT), H5Aclose);
                const int64_t value = 7;
                EXPECT_GE(H5Awrite(step.id(), H5T_STD_I64LE, &value), 0);
              }),
              HasSubstr("tables were changed"));
}

TEST_F(HostileIndex, IsRefusedForPathsThatLeadElsewhere) {
  const std::string outside = folder_ / "outside.h5";
  std::filesystem::copy_file(path_ + "/shards/000/rank_00000.h5", outside);
  for (const std::string& path : {std::string("../outside.h5"), outside, std::string("shards/../../outside.h5"),
                                  std::string(), std::string("a\x1b[31m")}) {
    EXPECT_NE(resume_from_index([&](Index& index) { index.files[0].path = path; }), "") << path;
    std::filesystem::remove(path_ + "/MANIFEST.json");
    checkpoint::rebuild_index(path_);
  }
}

TEST_F(HostileIndex, IsRefusedForShardsThatAreLinks) {
  const std::string shard = path_ + "/shards/000/rank_00000.h5", outside = folder_ / "outside.h5";
  std::filesystem::rename(shard, outside);
  std::filesystem::create_symlink(outside, shard);

  EXPECT_THAT(resume(), HasSubstr("no regular file"));
}

TEST_F(HostileIndex, IsRefusedForSizesThatOverflow) {
  const int64_t huge = int64_t{1} << 40;
  EXPECT_THAT(resume_from_index([&](Index& index) {
                index.tensors[0].shape = {huge, huge};
              }),
              HasSubstr("a size is impossible"));
}

TEST_F(HostileIndex, IsRefusedForFragmentsThatOverlapOrAreMissing) {
  EXPECT_THAT(resume_from_index([](Index& index) { index.fragments.pop_back(); }), HasSubstr("there are"));
  std::filesystem::remove(path_ + "/MANIFEST.json");
  checkpoint::rebuild_index(path_);
  EXPECT_THAT(resume_from_index([](Index& index) { index.fragments.push_back(index.fragments.back()); }),
              HasSubstr("elements twice"));
}

TEST_F(HostileIndex, IsRefusedForNamesThatArePaths) {
  for (const char* name : {"../x", "/x", "weights//x", "weights/./x", "a/b/c/d", "config.toml", "weights/\x01"}) {
    EXPECT_FALSE(checkpoint::is_valid_name(name)) << name;
  }
  EXPECT_TRUE(checkpoint::is_valid_name("exp_avg/layers.0.attention.q.weight"));
  EXPECT_THAT(resume_from_index([](Index& index) { index.tensors[0].name = "../x"; }),
              HasSubstr("a name that none has"));
}

TEST_F(HostileIndex, IsRefusedForAManifestThatIsADeepHole) {
  tests::write_file(path_ + "/MANIFEST.json", "{\"a\":" + std::string(1 << 20, '['));
  EXPECT_THAT(resume(), HasSubstr("MANIFEST.json"));
}

}  // namespace
