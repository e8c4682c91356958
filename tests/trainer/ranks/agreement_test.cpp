/// Ranks see different clocks and signals, and decide alike.

#include "trainer/agreement.h"

#include <csignal>

#include "tests/trainer/ranks/learner_fixture.h"

namespace tests {

class AgreementOnRanks : public LearnerRanksTest {
 protected:
  AgreementOnRanks() : learner_(make({})) {}
  trainer::Agreement agree(const trainer::Agreement& own) {
    return trainer::agree(own, learner_->context().world(), learner_->learner().ops().device());
  }
  std::unique_ptr<LearnerOnRanks> learner_;
};

TEST_F(AgreementOnRanks, FindsTheSignalOfAnyRank) {
  const bool is_last = rank() == size() - 1;

  EXPECT_EQ(agree({.signal = is_last ? SIGTERM : 0}).signal, SIGTERM);
  EXPECT_EQ(agree({}).signal, 0);
}

TEST_F(AgreementOnRanks, NamesOneOfSeveralSignals) {
  const int signal = rank() == 0 ? SIGINT : SIGTERM;

  EXPECT_EQ(agree({.signal = signal}).signal, size() == 1 ? SIGINT : SIGTERM);
}

TEST_F(AgreementOnRanks, GoesByTheClockOfRankZero) {
  EXPECT_TRUE(agree({.save_is_due = rank() == 0}).save_is_due);
  EXPECT_FALSE(agree({.save_is_due = rank() != 0}).save_is_due);
}

}  // namespace tests
