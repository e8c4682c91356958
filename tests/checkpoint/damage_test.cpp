// Whatever happens to the files of a checkpoint: it is noticed, or it means nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "checkpoint/verification.h"
#include "tests/checkpoint/sharded_state.h"
#include "tests/support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;
using testing::IsEmpty;
using tests::OneRank;
using tests::read_file;
using tests::StateOfARun;
using tests::TemporaryFolder;
using tests::write_file;

class Damage : public testing::Test {
 protected:
  Damage() {
    tests::fill_sharded(state_);
    older_ = state_.bytes();
    old_folder_ = tests::save_in_shards(folder_.path(), 10, state_, 3, rank_.device());
    for (size_t i = 0; i < state_.named().size(); ++i) {  // another state, in other bytes everywhere
      auto* bytes = static_cast<unsigned char*>(state_.at(i).raw());
      for (int64_t k = 0; k < state_.at(i).bytes(); ++k) bytes[k] ^= 0x5a;
    }
    newer_ = state_.bytes();
    new_folder_ = tests::save_in_shards(folder_.path(), 20, state_, 3, rank_.device());
    for (const auto& entry : fs::recursive_directory_iterator(new_folder_)) {
      if (entry.is_regular_file()) files_.push_back(entry.path().string());
    }
    std::sort(files_.begin(), files_.end());
  }

  std::string shard(int rank) const { return fmt::format("{}/shards/000/rank_{:05d}.h5", new_folder_, rank); }

  /// Whether the newer one was refused; whatever is loaded is one of the two states.
  bool resume_notices() {
    state_.clear();
    const auto resumed = rank_.resume_newest(folder_.path(), state_);
    EXPECT_TRUE(resumed);
    const bool is_new = resumed->info.progress.step == 20;
    EXPECT_EQ(resumed->info, tests::run_info(is_new ? 20 : 10));
    EXPECT_EQ(resumed->warnings.empty(), is_new);
    EXPECT_TRUE(state_.bytes() == (is_new ? newer_ : older_)) << "loaded something else";
    return !is_new;
  }

  /// One of the damages that happen to files. Says which.
  std::string harm(std::mt19937_64& random, const std::string& path) {
    std::string bytes = read_file(path);
    switch (random() % 8) {
      case 0:
        bytes.resize(random() % bytes.size());
        write_file(path, bytes);
        return "cut";
      case 1:
        fs::remove(path);
        return "deleted";
      case 2: {  // with a file of this or of the older checkpoint
        std::string other = files_[random() % files_.size()];
        if (random() % 2 == 0) other.replace(0, new_folder_.size(), old_folder_);
        if (other == path) other.replace(0, new_folder_.size(), old_folder_);
        write_file(path, read_file(other));
        return "swapped with " + other;
      }
      case 3: {
        const size_t begin = random() % bytes.size();
        std::fill(bytes.begin() + static_cast<int64_t>(begin),
                  bytes.begin() + static_cast<int64_t>(std::min(bytes.size(), begin + 4096)), '\0');
        write_file(path, bytes);
        return "zeroed";
      }
      default: {
        const size_t at = random() % bytes.size();
        bytes[at] ^= static_cast<char>(1 << random() % 8);
        write_file(path, bytes);
        return fmt::format("flipped at {}", at);
      }
    }
  }

  TemporaryFolder folder_;
  OneRank rank_;
  StateOfARun state_;
  std::vector<std::string> older_, newer_, files_;
  std::string old_folder_, new_folder_;
};

TEST_F(Damage, IsNoneAtFirst) {
  EXPECT_FALSE(resume_notices());
  EXPECT_THAT(checkpoint::verify(new_folder_).damages, IsEmpty());
}

TEST_F(Damage, IsNoticedOrMeansNothing) {
  std::mt19937_64 random(7);
  int num_noticed = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const std::string path = files_[random() % files_.size()], whole = read_file(path);
    const std::string what = harm(random, path);

    const bool is_noticed = resume_notices();

    num_noticed += is_noticed ? 1 : 0;
    EXPECT_TRUE(!is_noticed || !checkpoint::verify(new_folder_).damages.empty()) << path << " " << what;
    write_file(path, whole);
    if (HasFailure()) FAIL() << path << " " << what;
  }
  EXPECT_GT(num_noticed, 250);
}

TEST_F(Damage, OfEveryTensorIsNamedByVerify) {
  for (int rank = 0; rank < 3; ++rank) {
    const std::string whole = read_file(shard(rank));
    const checkpoint::Index index = checkpoint::open_checkpoint(new_folder_).index;
    for (const checkpoint::StoredFragment& stored : index.fragments) {
      if (stored.file != rank) continue;
      std::string changed = whole;
      changed[static_cast<size_t>(stored.offset)] ^= 4;
      write_file(shard(rank), changed);

      const auto damages = checkpoint::verify(new_folder_).damages;

      ASSERT_EQ(damages.size(), 1u);
      EXPECT_THAT(damages[0], HasSubstr(shard(rank)));
      EXPECT_THAT(damages[0], HasSubstr(index.tensors[static_cast<size_t>(stored.fragment.tensor)].name));
    }
    write_file(shard(rank), whole);
  }
}

TEST_F(Damage, OfAMissingShardIsTold) {
  fs::remove(shard(1));

  const auto damages = checkpoint::verify(new_folder_).damages;

  ASSERT_EQ(damages.size(), 2u);  // the manifest's word, and ours
  EXPECT_THAT(damages[1], HasSubstr(shard(1) + ": it is missing, and with it parts of 5 tensors"));
}

TEST_F(Damage, OfWhatPeopleReadIsFoundByVerify) {
  // bytes that loading never looks at: the name of a dataset in a shard
  std::string bytes = read_file(shard(0));
  const size_t at = bytes.find("layers.0.norm.weight@");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'L';
  write_file(shard(0), bytes);

  EXPECT_FALSE(resume_notices());
  EXPECT_THAT(checkpoint::verify(new_folder_).damages, testing::Not(IsEmpty()));
}

}  // namespace
