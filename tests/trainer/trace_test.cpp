#include "trainer/trace.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace trainer {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Trace a_trace() {
  return {.steps = {{.loss = {.loss = 20, .num_targets = 10}, .grad_norm = 5}},
          .gradients = {{"bias", {0, 1e-18}}, {"weight", {3, 4}}},
          .weights = {{"bias", {1e-9, 0}}, {"weight", {30, 40}}}};
}

WorstDifference worst(const std::string& kind, const Trace& ours, const Trace& reference) {
  for (WorstDifference& difference : compare(ours, reference, {})) {
    if (difference.kind == kind) return difference;
  }
  return {};
}

}  // namespace

TEST(Trace, DiffersFromItselfByNothing) {
  for (const WorstDifference& difference : compare(a_trace(), a_trace(), {})) {
    EXPECT_EQ(difference.difference, 0) << difference.kind;
    EXPECT_TRUE(difference.passes()) << difference.kind;
  }
}

TEST(Trace, ComparesScalarsRelativeToThemselves) {
  Trace ours = a_trace();
  ours.steps[0].loss.loss = 20 * (1 + 1e-6);
  ours.steps[0].grad_norm = 5 * (1 + 1e-11);

  EXPECT_NEAR(worst("loss", ours, a_trace()).difference, 1e-6, 1e-9);
  EXPECT_EQ(worst("loss", ours, a_trace()).where, "step 1");
  EXPECT_FALSE(worst("loss", ours, a_trace()).passes());
  EXPECT_TRUE(worst("grad_norm", ours, a_trace()).passes());
}

TEST(Trace, ComparesElementsRelativeToTheirTensorsNorm) {
  Trace ours = a_trace();
  ours.gradients["weight"][0] += 5e-6;
  ours.weights["weight"][1] -= 5e-4;

  EXPECT_NEAR(worst("gradient", ours, a_trace()).difference, 1e-6, 1e-12);
  EXPECT_NEAR(worst("weight", ours, a_trace()).difference, 1e-5, 1e-12);
  EXPECT_EQ(worst("weight", ours, a_trace()).where, "weight");
}

TEST(Trace, PassesRoundingOfAGradientThatIsZero) {
  Trace ours = a_trace();
  ours.gradients["bias"] = {1e-18, -1e-18};
  ours.weights["bias"] = {0, 1e-9};

  EXPECT_TRUE(worst("gradient", ours, a_trace()).passes());
  EXPECT_TRUE(worst("weight", ours, a_trace()).passes());
}

TEST(Trace, PassesGradientsThatAreNothingButRounding) {
  Trace reference = a_trace();
  reference.steps[0].grad_norm = 1e-17;
  reference.gradients = {{"bias", {0, 1e-18}}, {"weight", {1e-17, 0}}};
  Trace ours = reference;
  ours.steps[0].grad_norm = 3e-17;
  ours.gradients["weight"] = {0, -3e-17};

  EXPECT_TRUE(worst("grad_norm", ours, reference).passes());
  EXPECT_TRUE(worst("gradient", ours, reference).passes());

  ours.steps[0].grad_norm = 1e-3;
  ours.gradients["weight"] = {1e-3, 0};
  EXPECT_FALSE(worst("grad_norm", ours, reference).passes());
  EXPECT_FALSE(worst("gradient", ours, reference).passes());
}

TEST(Trace, SeesAGradientThatShouldBeZeroAndIsNot) {
  Trace ours = a_trace();
  ours.gradients["bias"] = {1e-12, 0};
  ours.weights["bias"] = {1e-3, 0};

  EXPECT_FALSE(worst("gradient", ours, a_trace()).passes());
  EXPECT_FALSE(worst("weight", ours, a_trace()).passes());
}

TEST(Trace, ComparesAWeightWithoutGradientRelativeToAllWeights) {
  Trace reference = a_trace(), ours = a_trace();
  reference.gradients["bias"] = {1, 1e-18};
  ours.gradients = reference.gradients;
  ours.weights["bias"] = {1e-9, 1e-9};
  EXPECT_TRUE(worst("weight", ours, reference).passes());

  ours.weights["bias"] = {2e-9, 0};
  EXPECT_FALSE(worst("weight", ours, reference).passes());
}

TEST(Trace, SeesATensorThatIsMissingTooManyOrOfAnotherSize) {
  Trace missing = a_trace(), too_many = a_trace(), shorter = a_trace();
  missing.weights.erase("bias");
  too_many.weights["more"] = {0};
  shorter.weights["weight"] = {30};

  for (const Trace& ours : {missing, too_many, shorter}) {
    EXPECT_TRUE(std::isinf(worst("weight", ours, a_trace()).difference));
  }
}

TEST(Trace, SeesNan) {
  Trace ours = a_trace();
  ours.steps[0].loss.loss = ours.steps[0].grad_norm = kNan;
  ours.gradients["bias"][0] = ours.weights["weight"][1] = kNan;

  for (const WorstDifference& difference : compare(ours, a_trace(), {})) {
    EXPECT_FALSE(difference.passes()) << difference.kind;
  }
}

TEST(Trace, FormatsWhatFailedAndWhere) {
  Trace ours = a_trace();
  ours.weights["weight"][0] = 0;

  EXPECT_THAT(format(compare(ours, a_trace(), {})),
              testing::AllOf(testing::ContainsRegex("weight +6.000e-01 +1.0e-09  FAILED weight"),
                             testing::ContainsRegex("loss +0.000e.00 +1.0e-10  ok")));
}

}  // namespace trainer
