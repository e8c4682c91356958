#include "checkpoint/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/checkpoint/state_of_a_run.h"
#include "tests/support/temporary_folder.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;
using tests::message_of;
using tests::run_info;
using tests::StateOfARun;
using tests::TemporaryFolder;
using tests::write_file;

class Directory : public testing::Test {
 protected:
  Directory() { state_.add("weights/w", {100}, tensor::Dtype::fp32); }

  std::string save(int64_t step, int64_t keep_last = 0) {
    static_cast<float*>(state_.at(0).raw())[0] = static_cast<float>(step);
    return checkpoint::save_in(dir_, run_info(step), state_.named(), keep_last);
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
  static void damage(const std::string& path) {
    std::string bytes = tests::read_file(path);
    bytes.resize(bytes.size() / 2);
    write_file(path, bytes);
  }

  TemporaryFolder folder_;
  std::string dir_ = folder_ / "run/checkpoints";
  StateOfARun state_;
};

TEST_F(Directory, NamesFilesByStep) {
  EXPECT_EQ(checkpoint::file_name(100), "step_00000100.h5");
  EXPECT_EQ(checkpoint::file_name(1'234'567'890), "step_1234567890.h5");
}

TEST_F(Directory, IsEmptyWhereThereIsNone) {
  EXPECT_THAT(steps(), ElementsAre());
  EXPECT_FALSE(checkpoint::latest_checkpoint(dir_));
  EXPECT_FALSE(checkpoint::resume_newest(dir_, state_.named()));
}

TEST_F(Directory, ListsCheckpointsByNumberAndNothingElse) {
  std::filesystem::create_directories(dir_);
  for (const char* name : {"step_00000900.h5", "step_00001000.h5", "step_100000000.h5", "step_900.h5", "step_.h5",
                           "step_00000005.h5.tmp-12345678", "step_-0000005.h5", "step_000000900.h5", "step_0000090x.h5",
                           "step_99999999999999999999.h5", "notes.txt", "xstep_00000005.h5"}) {
    write_file(dir_ + "/" + name, "");
  }

  EXPECT_THAT(steps(), ElementsAre(900, 1000, 100'000'000));
  EXPECT_EQ(checkpoint::latest_checkpoint(dir_)->step, 100'000'000);
}

TEST_F(Directory, KeepsTheLastOnesAndEverythingThatIsNotOurs) {
  for (int64_t step = 10; step <= 40; step += 10) save(step);
  write_file(dir_ + "/notes.txt", "mine");
  write_file(dir_ + "/step_5.h5", "mine");

  save(50, 2);

  EXPECT_THAT(names(), UnorderedElementsAre("step_00000040.h5", "step_00000050.h5", "notes.txt", "step_5.h5"));
}

TEST_F(Directory, NeverDeletesThroughALinkOrAFolder) {
  const std::string elsewhere = folder_ / "precious.h5";
  write_file(elsewhere, "precious");
  std::filesystem::create_directories(dir_ + "/step_00000002.h5");
  std::filesystem::create_symlink(elsewhere, dir_ + "/step_00000001.h5");

  save(50, 1);

  EXPECT_EQ(tests::read_file(elsewhere), "precious");
  EXPECT_THAT(steps(), ElementsAre(1, 2, 50));
}

TEST_F(Directory, DoesNotCountNewerCheckpointsAsKept) {
  for (const int64_t step : {10, 20, 900}) save(step);

  save(30, 2);

  EXPECT_THAT(steps(), ElementsAre(20, 30, 900));
}

TEST_F(Directory, KeepsAllForZero) {
  for (int64_t step = 1; step <= 5; ++step) save(step, 0);

  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(Directory, ResumesFromTheNewest) {
  save(90);
  save(100);
  state_.clear();

  const auto resumed = checkpoint::resume_newest(dir_, state_.named());

  ASSERT_TRUE(resumed);
  EXPECT_EQ(resumed->info.progress.step, 100);
  EXPECT_EQ(resumed->path, dir_ + "/step_00000100.h5");
  EXPECT_THAT(resumed->warnings, ElementsAre());
  EXPECT_EQ(state_.at(0).data<float>()[0], 100);
}

TEST_F(Directory, FallsBackLoudlyWhereTheNewestIsDamaged) {
  save(80);
  damage(save(90));
  write_file(dir_ + "/step_00000100.h5", "");

  const auto resumed = checkpoint::resume_newest(dir_, state_.named());

  ASSERT_TRUE(resumed);
  EXPECT_EQ(resumed->info.progress.step, 80);
  EXPECT_EQ(state_.at(0).data<float>()[0], 80);
  EXPECT_THAT(resumed->warnings, ElementsAre(HasSubstr("step_00000100.h5"), HasSubstr("step_00000090.h5")));
}

TEST_F(Directory, NeverStartsAnewWhereAllAreDamaged) {
  damage(save(90));
  damage(save(100));

  const std::string message =
      message_of<tensor::CheckpointError>([&] { checkpoint::resume_newest(dir_, state_.named()); });

  EXPECT_THAT(message, HasSubstr("all 2 checkpoints are damaged"));
  EXPECT_THAT(message, HasSubstr("step_00000090.h5"));
  EXPECT_THAT(message, HasSubstr("step_00000100.h5"));
  EXPECT_THAT(message, HasSubstr("Fix:"));
}

TEST_F(Directory, DoesNotFallBackWhereTheModelDiffers) {
  save(90);
  StateOfARun larger;
  larger.add("weights/w", {101}, tensor::Dtype::fp32);
  checkpoint::save_in(dir_, run_info(100), larger.named(), 0);

  const std::string message =
      message_of<tensor::CheckpointError>([&] { checkpoint::resume_newest(dir_, state_.named()); });

  EXPECT_THAT(message, HasSubstr("is [101] fp32 there and [100] fp32 in this run"));
}

TEST_F(Directory, ForgetsInterruptedSaves) {
  save(10);
  write_file(dir_ + "/step_00000020.h5.tmp-0badcafe", "half");
  write_file(dir_ + "/notes.h5.tmp-0badcafe", "mine");

  checkpoint::remove_temporary_files(dir_);

  EXPECT_THAT(names(), UnorderedElementsAre("step_00000010.h5", "notes.h5.tmp-0badcafe"));
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
