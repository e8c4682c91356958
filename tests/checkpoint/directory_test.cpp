#include "checkpoint/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/checkpoint/one_rank.h"
#include "tests/support/temporary_folder.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;
using tests::message_of;
using tests::OneRank;
using tests::StateOfARun;
using tests::TemporaryFolder;
using tests::write_file;

class Directory : public testing::Test {
 protected:
  Directory() { state_.add("weights/w", {100}, tensor::Dtype::fp32); }

  std::string save(int64_t step) {
    static_cast<float*>(state_.at(0).raw())[0] = static_cast<float>(step);
    return rank_.save(dir_, step, state_);
  }
  void save_all(const std::vector<int64_t>& steps) {
    for (const int64_t step : steps) save(step);
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> all;
    for (const auto& candidate : checkpoint::list_checkpoints(dir_)) all.push_back(candidate.step);
    return all;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(dir_)) all.push_back(entry.path().filename());
    return all;
  }
  static void damage(const std::string& folder) {
    const std::string path = folder + "/shards/000/rank_00000.h5";
    std::string bytes = tests::read_file(path);
    bytes.resize(bytes.size() / 2);
    write_file(path, bytes);
  }

  TemporaryFolder folder_;
  std::string dir_ = folder_ / "run/checkpoints";
  OneRank rank_;
  StateOfARun state_;
};

TEST_F(Directory, NamesFoldersByStep) {
  EXPECT_EQ(checkpoint::folder_name(100), "step_00000100");
  EXPECT_EQ(checkpoint::folder_name(1'234'567'890), "step_1234567890");
}

TEST_F(Directory, IsEmptyWhereThereIsNone) {
  EXPECT_THAT(steps(), ElementsAre());
  EXPECT_FALSE(checkpoint::latest_checkpoint(dir_));
  EXPECT_FALSE(rank_.resume_newest(dir_, state_));
}

TEST_F(Directory, ListsCheckpointsByNumberAndNothingElse) {
  for (const char* name : {"step_00000900", "step_00001000", "step_100000000", "step_900", "step_",
                           "trash_step_00000005", "step_00000005.tmp-12345678", "step_-0000005", "step_000000900",
                           "step_0000090x", "step_99999999999999999999", "xstep_00000005"}) {
    std::filesystem::create_directories(dir_ + "/" + name);
  }
  write_file(dir_ + "/step_00000007", "a file");
  std::filesystem::create_symlink("step_00000900", dir_ + "/step_00000008");

  EXPECT_THAT(steps(), ElementsAre(900, 1000, 100'000'000));
  EXPECT_EQ(checkpoint::latest_checkpoint(dir_)->step, 100'000'000);
}

TEST_F(Directory, KeepsTheLastOnesAndEverythingThatIsNotOurs) {
  save_all({10, 20, 30, 40, 50});
  write_file(dir_ + "/notes.txt", "mine");
  std::filesystem::create_directories(dir_ + "/step_5");

  checkpoint::keep_newest(dir_, 50, {.keep_last = 2});

  EXPECT_THAT(names(), UnorderedElementsAre("latest", "step_00000040", "step_00000050", "notes.txt", "step_5"));
}

TEST_F(Directory, KeepsRoundStepsAndWhatIsPinned) {
  save_all({10, 20, 30, 40, 50});
  write_file(dir_ + "/step_00000010/KEEP", "");

  checkpoint::keep_newest(dir_, 50, {.keep_last = 1, .keep_every = 20});

  EXPECT_THAT(steps(), ElementsAre(10, 20, 40, 50));
}

TEST_F(Directory, NeverDeletesThroughALink) {
  const std::string elsewhere = folder_ / "precious";
  std::filesystem::create_directories(elsewhere);
  write_file(elsewhere + "/file", "precious");
  save(50);
  std::filesystem::create_directory_symlink(elsewhere, dir_ + "/step_00000001");
  std::filesystem::create_directory_symlink(elsewhere, save(2) + "/link");

  checkpoint::keep_newest(dir_, 50, {.keep_last = 1});

  EXPECT_EQ(tests::read_file(elsewhere + "/file"), "precious");
  EXPECT_THAT(names(), UnorderedElementsAre("latest", "step_00000001", "step_00000050"));
}

TEST_F(Directory, DoesNotCountNewerCheckpointsAsKept) {
  save_all({10, 20, 900, 30});

  checkpoint::keep_newest(dir_, 30, {.keep_last = 2});

  EXPECT_THAT(steps(), ElementsAre(20, 30, 900));
}

TEST_F(Directory, KeepsAllForZero) {
  save_all({1, 2, 3, 4, 5});

  checkpoint::keep_newest(dir_, 5, {.keep_last = 0});

  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(Directory, ResumesFromTheNewest) {
  save(90);
  save(100);
  state_.clear();

  const auto resumed = rank_.resume_newest(dir_, state_);

  ASSERT_TRUE(resumed);
  EXPECT_EQ(resumed->info, tests::run_info(100));
  EXPECT_EQ(resumed->path, dir_ + "/step_00000100");
  EXPECT_THAT(resumed->warnings, ElementsAre());
  EXPECT_EQ(state_.at(0).data<float>()[0], 100);
}

TEST_F(Directory, ResumesFromAFolderOrASingleFile) {
  const std::string folder = save(90), file = folder_ / "state.h5";
  state_.at(0).data<float>()[0] = 7;
  checkpoint::save(file, tests::run_info(95), state_.named());

  EXPECT_EQ(rank_.resume_from(folder, state_).info.progress.step, 90);
  EXPECT_EQ(state_.at(0).data<float>()[0], 90);
  EXPECT_EQ(rank_.resume_from(file, state_).info.progress.step, 95);
  EXPECT_EQ(state_.at(0).data<float>()[0], 7);
}

TEST_F(Directory, FallsBackLoudlyWhereTheNewestIsDamaged) {
  save(80);
  damage(save(90));
  std::filesystem::create_directories(dir_ + "/step_00000100");

  const auto resumed = rank_.resume_newest(dir_, state_);

  ASSERT_TRUE(resumed);
  EXPECT_EQ(resumed->info.progress.step, 80);
  EXPECT_EQ(state_.at(0).data<float>()[0], 80);
  EXPECT_THAT(resumed->warnings, ElementsAre(HasSubstr("step_00000100"), HasSubstr("step_00000090")));
}

TEST_F(Directory, NeverStartsAnewWhereAllAreDamaged) {
  damage(save(90));
  damage(save(100));

  const std::string message = message_of<tensor::CheckpointError>([&] { rank_.resume_newest(dir_, state_); });

  EXPECT_THAT(message, HasSubstr("all 2 checkpoints are damaged"));
  EXPECT_THAT(message, HasSubstr("step_00000090"));
  EXPECT_THAT(message, HasSubstr("step_00000100"));
  EXPECT_THAT(message, HasSubstr("Fix:"));
}

TEST_F(Directory, DoesNotFallBackWhereTheModelDiffers) {
  save(90);
  StateOfARun larger;
  larger.add("weights/w", {101}, tensor::Dtype::fp32);
  rank_.save(dir_, 100, larger);

  const std::string message = message_of<tensor::CheckpointError>([&] { rank_.resume_newest(dir_, state_); });

  EXPECT_THAT(message, HasSubstr("is [101] fp32 there and [100] fp32 in this run"));
}

TEST_F(Directory, ForgetsInterruptedSavesAndDeletions) {
  save(10);
  for (const char* name : {"step_00000020.tmp-0badcafe", "trash_step_00000005", "notes.tmp-0badcafe", "trash_notes"}) {
    std::filesystem::create_directories(dir_ + "/" + name + "/shards");
  }

  checkpoint::remove_leftovers(dir_);

  EXPECT_THAT(names(), UnorderedElementsAre("latest", "step_00000010", "notes.tmp-0badcafe", "trash_notes"));
}

TEST_F(Directory, ForgetsAnInterruptedPointerToTheLatest) {
  save(10);
  write_file(dir_ + "/latest.tmp-0badcafe", "step_0000");
  write_file(dir_ + "/latest.txt", "mine");

  checkpoint::remove_leftovers(dir_);

  EXPECT_THAT(names(), UnorderedElementsAre("latest", "latest.txt", "step_00000010"));
}

TEST_F(Directory, PublishesInPlaceOfAnotherOfTheSameStep) {
  write_file(save(10) + "/notes.txt", "of the first");
  std::filesystem::rename(dir_ + "/step_00000010", dir_ + "/first");
  save(10);
  std::filesystem::rename(dir_ + "/step_00000010", dir_ + "/step_00000010.tmp-0badcafe");
  std::filesystem::rename(dir_ + "/first", dir_ + "/step_00000010");

  checkpoint::publish_checkpoint(dir_ + "/step_00000010.tmp-0badcafe", dir_ + "/step_00000010");

  EXPECT_THAT(names(), UnorderedElementsAre("latest", "step_00000010"));
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/step_00000010/notes.txt"));
  EXPECT_TRUE(rank_.resume_newest(dir_, state_));
}

TEST_F(Directory, SaysThatANameCannotBeGiven) {
  const std::string message = message_of<tensor::StorageError>(
      [&] { checkpoint::publish_checkpoint(dir_ + "/step_00000010.tmp-0badcafe", dir_ + "/step_00000010"); });

  EXPECT_THAT(message, HasSubstr(dir_ + "/step_00000010: the new checkpoint cannot be given its name: No such file"));
}

TEST_F(Directory, PointsToTheLatest) {
  save(10);

  checkpoint::point_to_latest(dir_, 10);

  EXPECT_EQ(tests::read_file(dir_ + "/latest"), "step_00000010\n");
}

TEST_F(Directory, SaysHowMuchRoomIsMissing) {
  EXPECT_NO_THROW(checkpoint::require_free_space(folder_.path(), 1));

  const std::string message =
      message_of<tensor::StorageError>([&] { checkpoint::require_free_space(folder_.path(), int64_t{1} << 60); });

  EXPECT_THAT(message, HasSubstr(folder_.path()));
  EXPECT_THAT(message, HasSubstr("takes 1152921504606.8 MB"));
}

TEST_F(Directory, SaysThatItsParentIsAFile) {
  write_file(folder_ / "run", "");

  const std::string message = message_of<tensor::StorageError>([&] { save(1); });

  EXPECT_THAT(message, HasSubstr(dir_));
  EXPECT_THAT(message, HasSubstr("Not a directory"));
}

}  // namespace
