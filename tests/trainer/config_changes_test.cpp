#include "trainer/config_changes.h"

#include <gmock/gmock.h>

#include "tests/trainer/config_samples.h"

namespace trainer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string toml(const std::vector<std::string>& overrides = {}) {
  return to_toml(parse_config(kValidConfig, "test.toml", overrides));
}

TEST(ConfigChanges, AreNoneBetweenEqualConfigs) { EXPECT_THAT(config_changes(toml(), toml()), IsEmpty()); }

TEST(ConfigChanges, TellTheNewValueAndTheOld) {
  const std::string now = toml({"train.steps=200", "optimizer.lr=0.5", "data.train=[\"a # b.bin\"]"});

  EXPECT_THAT(config_changes(toml(), now), ElementsAre("train.steps = 200 (was 100)", "optimizer.lr = 0.5 (was 0.0003)",
                                                       "data.train = [\"a # b.bin\"] (was [\"a.bin\", \"b.bin\"])"));
}

TEST(ConfigChanges, LeaveOutWhatChangesNoNumber) {
  const std::string now = toml({"run.dir=elsewhere", "checkpoint.every_steps=7", "log.every_steps=3"});

  EXPECT_THAT(config_changes(toml(), now), IsEmpty());
}

TEST(ConfigChanges, NameKeysOfANewerVersion) {
  EXPECT_THAT(config_changes("[train]\nsteps = 3\n", "[train]\nsteps = 3\nnew_key = 1  # what it means\n"),
              ElementsAre("train.new_key = 1 (was not there)"));
  EXPECT_THAT(config_changes("", "[train]\nsteps = 3\n"), ElementsAre("train.steps = 3 (was not there)"));
}

TEST(ConfigChanges, PrintNoControlBytesOfACheckpoint) {
  EXPECT_THAT(config_changes("[train]\nsteps = \x1b[31m3\n", "[train]\nsteps = 3\n"),
              ElementsAre("train.steps = 3 (was \\x1b[31m3)"));
}

}  // namespace
}  // namespace trainer
