#include "checkpoint/single_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <random>

#include "tests/checkpoint/state_of_a_run.h"
#include "tests/support/temporary_folder.h"

/// HDF5 1.10 itself loses some memory when it fails to open a damaged file. Read by the leak checker of the preset
/// asan.
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }

namespace {

using checkpoint::DamagedError;
using tensor::CheckpointError;
using tensor::Dtype;
using tensor::StorageError;
using testing::HasSubstr;
using testing::Not;
using tests::fill;
using tests::message_of;
using tests::read_file;
using tests::run_info;
using tests::StateOfARun;
using tests::TemporaryFolder;
using tests::write_file;

class SingleFile : public testing::Test {
 protected:
  SingleFile() { fill(state_); }

  std::string save() {
    checkpoint::save(path_, run_info(), state_.named());
    return path_;
  }
  size_t files_in_folder() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_.path()), {}));
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "state.h5";
  StateOfARun state_;
};

TEST_F(SingleFile, GivesBackEveryBit) {
  const auto before = state_.bytes();
  save();
  state_.clear();

  const checkpoint::RunInfo info = checkpoint::load(path_, state_.named());

  EXPECT_EQ(state_.bytes(), before);
  EXPECT_EQ(info, run_info());
}

TEST_F(SingleFile, KeepsInfinitiesSubnormalsAndNanPayloads) {
  StateOfARun state;
  state.add("weights/x", {5}, Dtype::fp32);
  state.add("weights/y", {5}, Dtype::bf16);
  const uint32_t singles[] = {0x7f800001, 0xffc12345, 0x80000000, 0x00000001, 0x7f800000};
  const uint16_t halves[] = {0x7f81, 0xffc5, 0x8000, 0x0001, 0xff80};
  std::memcpy(state.at(0).raw(), singles, sizeof singles);
  std::memcpy(state.at(1).raw(), halves, sizeof halves);
  const auto before = state.bytes();
  checkpoint::save(path_, run_info(), state.named());
  state.clear();

  checkpoint::load(path_, state.named());

  EXPECT_EQ(state.bytes(), before);
}

TEST_F(SingleFile, FindsTensorsByNameWhateverTheirOrder) {
  const auto before = state_.bytes();
  save();
  state_.clear();
  std::reverse(state_.named().begin(), state_.named().end());

  checkpoint::load(path_, state_.named());

  EXPECT_EQ(state_.bytes(), before);
}

TEST_F(SingleFile, CopiesThroughTheHostWhereTheDeviceIsNotTheHost) {
  StateOfARun state(tensor::DeviceKind::cuda);
  fill(state);
  const auto before = state.bytes();
  checkpoint::save(path_, run_info(), state.named());
  state.clear();
  state.device().num_copies = 0;

  checkpoint::load(path_, state.named());

  EXPECT_EQ(state.bytes(), before);
  EXPECT_EQ(state.device().num_copies, 6);  // one of the seven is empty
}

TEST_F(SingleFile, HoldsARunWithoutTensorsConfigOrBuildId) {
  const checkpoint::RunInfo info{{0, 0, 0, 0}, "", ""};
  checkpoint::save(path_, info, {});

  EXPECT_EQ(checkpoint::load(path_, {}), info);
}

TEST_F(SingleFile, HoldsThousandsOfTensors) {
  StateOfARun state;
  for (int i = 0; i < 3000; ++i) state.add(fmt::format("weights/layers.{}.w", i), {3}, Dtype::fp32);
  const auto before = state.bytes();
  checkpoint::save(path_, run_info(), state.named());
  state.clear();

  checkpoint::load(path_, state.named());

  EXPECT_EQ(state.bytes(), before);
  EXPECT_LE(std::filesystem::file_size(path_), checkpoint::file_bytes(run_info(), state.named()));
}

TEST_F(SingleFile, IsTheSameFileForTheSameState) {
  save();
  const std::string first = read_file(path_);
  ::usleep(1'100'000);  // the clock of time stamps in HDF5 counts seconds
  save();

  EXPECT_TRUE(read_file(path_) == first);
}

TEST_F(SingleFile, TellsWhatIsInside) {
  const checkpoint::Contents contents = checkpoint::inspect(save());

  EXPECT_EQ(contents.info, run_info());
  ASSERT_EQ(contents.tensors.size(), 7u);
  EXPECT_EQ(contents.tensors[0].name, "counts/experts");
  EXPECT_EQ(contents.tensors[5].name, "weights/layers.0.attention.q.weight");
  EXPECT_EQ(contents.tensors[5].dtype, Dtype::bf16);
  EXPECT_EQ(contents.tensors[5].shape, (tensor::Shape{7, 5}));
}

TEST_F(SingleFile, ObeysTheUmask) {
  const mode_t before = ::umask(027);
  save();
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);

  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

// ---- what does not fit ----

TEST_F(SingleFile, ListsAllTensorsThatDoNotFitAtOnceAndTouchesNone) {
  save();
  StateOfARun other;
  other.add("weights/layers.0.attention.q.weight", {7, 6}, Dtype::bf16);
  other.add("weights/layers.1.attention.q.weight", {300, 256}, Dtype::fp64);
  other.add("weights/layers.2.attention.q.weight", {300, 256}, Dtype::fp32);
  const auto before = other.bytes();

  const std::string message = message_of<CheckpointError>([&] { checkpoint::load(path_, other.named()); });

  EXPECT_THAT(message, HasSubstr(path_));
  EXPECT_THAT(message,
              HasSubstr("\"weights/layers.0.attention.q.weight\" is [7, 5] bf16 there and [7, 6] bf16 in this"));
  EXPECT_THAT(message,
              HasSubstr("\"weights/layers.1.attention.q.weight\" is [300, 256] fp32 there and [300, 256] fp64"));
  EXPECT_THAT(message, HasSubstr("it lacks \"weights/layers.2.attention.q.weight\" [300, 256] fp32"));
  EXPECT_THAT(message, HasSubstr("it has \"counts/experts\" [65] int32, which this run has no place for"));
  EXPECT_THAT(message, HasSubstr("It was written by a model with num_layers = 2; this one has 3."));
  EXPECT_THAT(message, HasSubstr("Fix: set model.num_layers = 2"));
  EXPECT_EQ(other.bytes(), before);
}

TEST_F(SingleFile, PointsToTheConfigInsideWhereTheLayersAgree) {
  save();
  state_.named().pop_back();

  const std::string message = message_of<CheckpointError>([&] { checkpoint::load(path_, state_.named()); });

  EXPECT_THAT(message, HasSubstr("it has \"counts/experts\""));
  EXPECT_THAT(message, HasSubstr("h5dump -d config.toml"));
  EXPECT_THAT(message, Not(HasSubstr("num_layers")));
}

TEST_F(SingleFile, ShortensALongListOfDifferences) {
  save();
  for (int i = 0; i < 500; ++i) state_.add(fmt::format("weights/new.{}", i), {1}, Dtype::fp32);

  const std::string message = message_of<CheckpointError>([&] { checkpoint::load(path_, state_.named()); });

  EXPECT_THAT(message, HasSubstr("... and 492 more."));
}

TEST_F(SingleFile, SaysThatThereIsNoSuchCheckpoint) {
  const std::string message = message_of<CheckpointError>([&] { checkpoint::load(path_, state_.named()); });

  EXPECT_THAT(message, HasSubstr("there is no such checkpoint"));
  EXPECT_THAT(message, HasSubstr("Fix:"));
}

// ---- damage ----

TEST_F(SingleFile, NoticesEveryTruncation) {
  const std::string whole = read_file(save());

  for (size_t size = 0; size < whole.size(); size += 1 + whole.size() / 97) {
    write_file(path_, whole.substr(0, size));
    EXPECT_THROW(checkpoint::load(path_, state_.named()), DamagedError) << size << " bytes left";
  }
}

TEST_F(SingleFile, NoticesABitFlippedInAnyTensor) {
  save();
  const std::string whole = read_file(path_);

  for (const std::string& bytes : state_.bytes()) {
    if (bytes.empty()) continue;
    const size_t at = whole.find(bytes);
    ASSERT_NE(at, std::string::npos);
    for (const size_t offset : {size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
      std::string flipped = whole;
      flipped[at + offset] ^= 0x10;
      write_file(path_, flipped);
      EXPECT_THROW(checkpoint::load(path_, state_.named()), DamagedError);
    }
  }
}

TEST_F(SingleFile, NeverLoadsAnythingElseAfterAFlippedBit) {
  const auto before = state_.bytes();
  const std::string whole = read_file(save());
  std::mt19937_64 random(5);
  int num_noticed = 0;

  for (int trial = 0; trial < 600; ++trial) {
    std::string flipped = whole;
    flipped[random() % (trial % 2 == 0 ? whole.size() : 1 << 14)] ^= static_cast<char>(1 << random() % 8);
    write_file(path_, flipped);
    try {
      EXPECT_EQ(checkpoint::load(path_, state_.named()), run_info());  // a bit that means nothing
      EXPECT_EQ(state_.bytes(), before);
    } catch (const CheckpointError&) {
      ++num_noticed;
    }
  }

  EXPECT_GT(num_noticed, 300);
}

TEST_F(SingleFile, RefusesGarbage) {
  const std::string zeros(1 << 16, '\0');
  for (const std::string& bytes : {std::string(), std::string("hello"), zeros, "\x89HDF\r\n\x1a\n" + zeros}) {
    write_file(path_, bytes);
    EXPECT_THROW(checkpoint::load(path_, state_.named()), DamagedError);
  }
}

TEST_F(SingleFile, RefusesAFolderAndAPipe) {
  EXPECT_THROW(checkpoint::load(folder_.path(), state_.named()), DamagedError);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THROW(checkpoint::load(path_, state_.named()), DamagedError);
}

// ---- failing storage ----

TEST_F(SingleFile, NamesTheFileAndTheReasonWhereItCannotBeWritten) {
  const std::string path = folder_ / "missing/state.h5";

  const std::string message = message_of<StorageError>([&] { checkpoint::save(path, run_info(), state_.named()); });

  EXPECT_THAT(message, HasSubstr(path));
  EXPECT_THAT(message, HasSubstr("No such file or directory"));
  EXPECT_THAT(message, HasSubstr("Fix: create the folder"));
}

/// Runs `body` in a child process and returns its exit status, or -signal.
template <class Body>
int run_in_child(Body&& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST_F(SingleFile, SurvivesADiskWithoutRoomAndLeavesThePreviousOneAlone) {
  const auto before = state_.bytes();
  save();
  for (const rlim_t limit : {rlim_t{0}, rlim_t{1000}, rlim_t{100'000}, rlim_t{300'000}}) {
    const int status = run_in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit limits{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &limits);
      const std::string message = message_of<StorageError>([&] { save(); });
      return message.find("File too large") != std::string::npos && message.find(path_) != std::string::npos ? 6 : 1;
    });
    EXPECT_EQ(status, 6) << limit;
  }
  state_.clear();

  checkpoint::load(path_, state_.named());

  EXPECT_EQ(state_.bytes(), before);
  EXPECT_EQ(files_in_folder(), 1u) << "temporary files stay behind";
}

TEST_F(SingleFile, LeavesTheFileWholeWhenKilledAtAnyMomentOfASave) {
  StateOfARun large;
  large.add("weights/w", {2'000'000}, Dtype::fp32);
  checkpoint::save(path_, run_info(1), large.named());
  for (int trial = 0; trial < 20; ++trial) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int64_t step = 2;; ++step) checkpoint::save(path_, run_info(step), large.named());
    }
    ::usleep(static_cast<useconds_t>(3'000 + 1'700 * trial));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);

    EXPECT_NO_THROW(checkpoint::load(path_, large.named()));
  }
}

}  // namespace
