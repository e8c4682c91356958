#include "tensor/exact_sum.h"

#include <omp.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/support/tensors.h"

namespace tensor {
namespace {

using tests::Values;
using tests::values_of;

/// Both signs, magnitudes over 2^-range .. 1, zeros between.
Values mixed_values(int64_t count, int range, uint64_t seed) {
  std::mt19937_64 random(seed);
  Values values = tests::random_values(count, seed);
  for (double& value : values) {
    value = random() % 7 == 0 ? 0 : std::ldexp(value, -static_cast<int>(random() % static_cast<uint64_t>(range + 1)));
  }
  return values;
}

double largest_of(const Values& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// In halves, so that a rounding error is made log2(count) times in 64 bits, not count times.
long double sum_by_halves(const double* values, size_t count) {
  if (count == 0) return 0;
  if (count == 1) return static_cast<long double>(*values) * static_cast<long double>(*values);
  return sum_by_halves(values, count / 2) + sum_by_halves(values + count / 2, count - count / 2);
}

class ExactSumTest : public tests::CpuTest, public testing::WithParamInterface<Dtype> {
 protected:
  Tensor make(const Values& values) {
    return tests::make_tensor(device_, {static_cast<int64_t>(values.size())}, GetParam(), values);
  }
  double sum(const Tensor& x) { return ops_.sum_of_squares(x, ops_.max_abs(x)).value(); }
};

TEST_P(ExactSumTest, MatchesALongDoubleSumAtAnyLength) {
  for (const int64_t count : {0, 1, 31, 32, 33, 4097, 65'536, 65'537, 300'001}) {
    const Tensor x = make(tests::random_values(count, 1));

    const Values values = values_of(x);
    const auto expected = static_cast<double>(sum_by_halves(values.data(), values.size()));

    // Squares are rounded in fp64 only, by at most 2^-53 each; so is the sum, here and there.
    EXPECT_NEAR(sum(x), expected, 1.5 * 0x1p-52 * expected) << count;
  }
}

TEST_P(ExactSumTest, HasTheSameBitsForAnyCutAndOrder) {
  std::mt19937_64 random(7);
  for (const int range : {0, 20, 60}) {
    const Values values = mixed_values(70'003, range, static_cast<uint64_t>(range) + 1);
    const Tensor x = make(values);
    const double max_abs = ops_.max_abs(x);
    const double whole = ops_.sum_of_squares(x, max_abs).value();

    for (int draw = 0; draw < 10; ++draw) {
      std::vector<int64_t> cuts = {0, x.numel()};
      for (int i = 0; i < 20; ++i) cuts.push_back(static_cast<int64_t>(random() % 70'004));
      std::sort(cuts.begin(), cuts.end());
      std::vector<ExactSum> parts;
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        parts.push_back(ops_.sum_of_squares(x.rows(cuts[i], cuts[i + 1]), max_abs));
      }
      std::shuffle(parts.begin(), parts.end(), random);
      ExactSum sum(max_abs);
      for (const ExactSum& part : parts) sum += part;

      EXPECT_EQ(sum.value(), whole) << "range " << range << " draw " << draw;
    }
  }
}

TEST_P(ExactSumTest, HasTheSameBitsForAnyPermutationOfTheElements) {
  std::mt19937_64 random(11);
  Values values = mixed_values(10'007, 40, 3);
  const double first = sum(make(values));

  for (int draw = 0; draw < 5; ++draw) {
    std::shuffle(values.begin(), values.end(), random);
    EXPECT_EQ(sum(make(values)), first);
  }
}

TEST_P(ExactSumTest, HasTheSameBitsForAnyNumberOfThreads) {
  const Tensor x = make(mixed_values(300'007, 10, 1));
  omp_set_num_threads(1);
  const double with_one = sum(x);

  for (const int num_threads : {2, 3, 4}) {
    omp_set_num_threads(num_threads);
    EXPECT_EQ(sum(x), with_one);
  }
}

TEST_P(ExactSumTest, ComesThroughAnAllReduceOfLimbs) {
  const Tensor x = make(mixed_values(40'001, 30, 5));
  const double max_abs = ops_.max_abs(x);
  ExactSum::Limbs limbs{};
  for (int64_t begin = 0; begin < x.numel(); begin += 1237) {
    const Tensor part = x.rows(begin, std::min(begin + 1237, x.numel()));
    const ExactSum::Limbs own = ops_.sum_of_squares(part, max_abs).limbs();
    for (size_t i = 0; i < limbs.size(); ++i) limbs[i] += own[i];
  }

  EXPECT_EQ(ExactSum::from_limbs(max_abs, limbs).value(), sum(x));
}

TEST_P(ExactSumTest, KeepsSmallElementsBesideALargeOne) {
  // 2^20 squares of 2^-60, each below half a unit of fp64 beside the 1: a running sum would lose them all.
  Values values(1 << 20, 0x1p-30);
  values[12345] = 1;

  EXPECT_EQ(sum(make(values)), 1 + (0x1p20 - 1) * 0x1p-60);
}

TEST_P(ExactSumTest, IsExactForOnes) {
  EXPECT_EQ(sum(make(Values(100'003, 1))), 100'003);
  EXPECT_EQ(sum(make(Values(100'003, -1))), 100'003);
}

TEST_P(ExactSumTest, DependsOnScaleOnlyByAPowerOfTwo) {
  const Values values = tests::random_values(1001, 9);
  const double unscaled = sum(make(values));
  for (const int exponent : {-100, -30, 5, 100}) {
    Values scaled = values;
    for (double& value : scaled) value = std::ldexp(value, exponent);
    EXPECT_EQ(sum(make(scaled)), std::ldexp(unscaled, 2 * exponent));
  }
}

TEST_P(ExactSumTest, ShowsNanAndInfinity) {
  for (const int64_t place : {0, 5000, 9999}) {
    Tensor x = tests::random_tensor(device_, {10'000}, GetParam(), 1);
    tests::store(GetParam(), -INFINITY, x.raw(), place);
    EXPECT_EQ(ops_.max_abs(x), INFINITY);
    EXPECT_EQ(sum(x), INFINITY);
    tests::store(GetParam(), std::nan(""), x.raw(), 9998 - place % 7);
    EXPECT_TRUE(std::isnan(ops_.max_abs(x)));
    EXPECT_TRUE(std::isnan(sum(x)));
  }
}

TEST_P(ExactSumTest, OfNothingAndOfZerosIsZero) {
  EXPECT_EQ(sum(make({})), 0);
  EXPECT_EQ(sum(make(Values(100, 0))), 0);
  EXPECT_EQ(sum(make(Values(100, -0.0))), 0);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ExactSumTest, testing::Values(Dtype::fp32, Dtype::bf16, Dtype::fp64));

class MaxAbsTest : public tests::CpuTest, public testing::WithParamInterface<Dtype> {};

TEST_P(MaxAbsTest, MatchesNaiveLoopAtAnyLength) {
  for (const int64_t count : {0, 1, 31, 4097, 100'001}) {
    const Tensor x = tests::random_tensor(device_, {count}, GetParam(), static_cast<uint64_t>(count));
    EXPECT_EQ(ops_.max_abs(x), largest_of(values_of(x)));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, MaxAbsTest, testing::Values(Dtype::fp32, Dtype::bf16, Dtype::fp64));

class ExactSumAtTheEdges : public tests::CpuTest {
 protected:
  ExactSum sum(Dtype dtype, const Values& values) {
    const Tensor x = tests::make_tensor(device_, {static_cast<int64_t>(values.size())}, dtype, values);
    return ops_.sum_of_squares(x, ops_.max_abs(x));
  }
};

TEST_F(ExactSumAtTheEdges, SumsSubnormalsAndTheLargestNumbers) {
  EXPECT_EQ(sum(Dtype::fp32, Values(5, 0x1p-149)).value(), 5 * 0x1p-298);
  EXPECT_EQ(sum(Dtype::fp32, Values(5, 0x1.fffffep127)).value(), 5 * 0x1.fffffep127 * 0x1.fffffep127);
  EXPECT_EQ(sum(Dtype::fp64, Values(5, 0x1p-500)).value(), 5 * 0x1p-1000);
  EXPECT_EQ(sum(Dtype::fp64, Values(5, 0x1p500)).value(), 5 * 0x1p1000);
}

TEST_F(ExactSumAtTheEdges, HasARootWhereTheSumOverflows) {
  EXPECT_EQ(sum(Dtype::fp64, Values(4, 0x1p1000)).value(), INFINITY);
  EXPECT_EQ(sum(Dtype::fp64, Values(4, 0x1p1000)).root(), 0x1p1001);
  EXPECT_EQ(sum(Dtype::fp64, Values(4, 0x1p-1000)).root(), 0x1p-999);
  EXPECT_EQ(sum(Dtype::fp64, Values(9, 3)).root(), 9);
}

TEST_F(ExactSumAtTheEdges, RoundsEverySquareOfFp64Alike) {
  // 1 + 2^-30 squared is 1 + 2^-29 + 2^-60: fp64 drops the last term, a fused multiply-add would keep it.
  for (const int64_t count : {1, 31, 32, 33}) {
    const double one = (1 + 0x1p-30) * (1 + 0x1p-30);
    EXPECT_EQ(sum(Dtype::fp64, Values(static_cast<size_t>(count), 1 + 0x1p-30)).value(),
              static_cast<double>(count) * one);
    const ExactSum::Limbs limbs = sum(Dtype::fp64, Values(1, 1 + 0x1p-30)).limbs();
    EXPECT_EQ(limbs[0] % (int64_t{1} << 26), 0) << "bits below 2^-52";
  }
}

TEST_F(ExactSumAtTheEdges, HoldsSumsOfManyRanks) {
  ExactSum::Limbs limbs{};
  const ExactSum::Limbs own = sum(Dtype::fp32, Values(1000, 1.75)).limbs();
  for (size_t i = 0; i < limbs.size(); ++i) limbs[i] = own[i] << 20;  // a million ranks

  EXPECT_EQ(ExactSum::from_limbs(1.75, limbs).value(), 0x1p20 * 1000 * 1.75 * 1.75);
}

TEST_F(ExactSumAtTheEdges, RefusesToAddSumsInOtherUnits) {
  ExactSum sum(1.0);

  EXPECT_THROW(sum += ExactSum(2.0), InternalError);
}

}  // namespace
}  // namespace tensor
