#include "trainer/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tensor/error.h"
#include "tests/support/temporary_folder.h"

namespace tests {

using testing::HasSubstr;
using trainer::RunLock;

class RunLockTest : public testing::Test {
 protected:
  std::string refusal(RunLock& lock) {
    try {
      lock.hold({path_});
    } catch (const tensor::LayoutError& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "lock";
};

TEST_F(RunLockTest, NamesWhoHoldsIt) {
  RunLock first, second(std::chrono::seconds(0));
  first.hold({path_});

  const std::string message = refusal(second);

  EXPECT_THAT(message, HasSubstr(path_ + " is held by process " + std::to_string(::getpid()) + " on "));
  EXPECT_THAT(message, HasSubstr("Fix: "));
}

TEST_F(RunLockTest, EndsWithItsHolder) {
  RunLock second(std::chrono::seconds(0));
  {
    RunLock first;
    first.hold({path_});
  }

  EXPECT_EQ(refusal(second), "");
}

TEST_F(RunLockTest, IsHeldOnce) {
  RunLock lock(std::chrono::seconds(0));
  lock.hold({path_});

  EXPECT_EQ(refusal(lock), "");
}

TEST_F(RunLockTest, WritesNothingWhereNoRunWas) {
  RunLock first, second(std::chrono::seconds(0));

  first.hold_existing({path_});

  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(refusal(second), "");
  EXPECT_THROW(RunLock(std::chrono::seconds(0)).hold_existing({path_}), tensor::LayoutError);
}

TEST_F(RunLockTest, EscapesWhatSomebodyElseWroteThere) {
  RunLock first, second(std::chrono::seconds(0));
  write_file(path_, "\x1b[2Jnobody");
  first.hold_existing({path_});

  EXPECT_THAT(refusal(second), HasSubstr(" is held by [2Jnobody: "));
}

}  // namespace tests
