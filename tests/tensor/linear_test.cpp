#include <omp.h>

#include "tests/support/tensors.h"

namespace tensor {
namespace {

using tests::Values;
using tests::values_of;

constexpr int64_t kTokens = 19, kIn = 7, kOut = 70;

double& at(Values& x, int64_t i) { return x[static_cast<size_t>(i)]; }
double at(const Values& x, int64_t i) { return x[static_cast<size_t>(i)]; }

class LinearTest : public tests::CpuTest, public testing::WithParamInterface<Dtype> {
 protected:
  Tensor random(Shape shape, uint64_t seed) { return tests::random_tensor(device_, shape, GetParam(), seed); }
  Tensor undefined(Shape shape) { return tests::undefined_tensor(device_, shape, GetParam()); }
  /// Normals do not exceed 6 here, so products add up to at most 36 * length.
  double tolerance(int64_t length) {
    return tests::sum_tolerance(GetParam(), static_cast<double>(length), 2.0 * static_cast<double>(length) + 36);
  }
};

TEST_P(LinearTest, MatchesNaiveLoop) {
  const Tensor x = random({kTokens, kIn}, 1), weight = random({kOut, kIn}, 2), bias = random({kOut}, 3);
  Tensor y = undefined({kTokens, kOut});

  ops_.linear(x, weight, bias, y);

  const Values x_values = values_of(x), w = values_of(weight), b = values_of(bias), y_values = values_of(y);
  for (int64_t i = 0; i < kTokens * kOut; ++i) {
    double expected = at(b, i % kOut);
    for (int64_t l = 0; l < kIn; ++l) expected += at(x_values, i / kOut * kIn + l) * at(w, i % kOut * kIn + l);
    EXPECT_NEAR(at(y_values, i), expected, tolerance(kIn + 1));
  }
}

TEST_P(LinearTest, GoesWithoutBias) {
  const Tensor x = random({kTokens, kIn}, 1), weight = random({kOut, kIn}, 2);
  const Tensor zero = tests::make_tensor(device_, {kOut}, GetParam(), Values(kOut, 0));
  Tensor y = undefined({kTokens, kOut}), with_zero_bias = undefined({kTokens, kOut});

  ops_.linear(x, weight, Tensor(), y);
  ops_.linear(x, weight, zero, with_zero_bias);

  EXPECT_EQ(values_of(y), values_of(with_zero_bias));
}

TEST_P(LinearTest, WritesIntoColumnsOfAWiderMatrix) {
  const Tensor x = random({kTokens, kIn}, 1), weight = random({kOut, kIn}, 2), bias = random({kOut}, 3);
  Tensor y = undefined({kTokens, kOut}), wide = random({kTokens, kOut + 3}, 4);
  Tensor part = wide.columns(2, kOut + 2);

  ops_.linear(x, weight, bias, y);
  ops_.linear(x, weight, bias, part);

  const Values expected = values_of(y), computed = values_of(part);
  for (int64_t i = 0; i < y.numel(); ++i) EXPECT_NEAR(at(computed, i), at(expected, i), tolerance(kIn + 1));
}

TEST_P(LinearTest, BackwardMatchesNaiveLoops) {
  const Tensor dy = random({kTokens, kOut}, 1), x = random({kTokens, kIn}, 2), weight = random({kOut, kIn}, 3);
  Tensor dx = undefined({kTokens, kIn}), dweight = undefined({kOut, kIn}), dbias = undefined({kOut});

  ops_.linear_backward_input(dy, weight, dx, Write::overwrite);
  ops_.linear_backward_weight(dy, x, dweight, dbias, Write::overwrite);

  Values expected_dx(kTokens * kIn), expected_dw(kOut * kIn), expected_db(kOut);
  const Values d = values_of(dy), x_values = values_of(x), w = values_of(weight);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t o = 0; o < kOut; ++o) {
      at(expected_db, o) += at(d, t * kOut + o);
      for (int64_t i = 0; i < kIn; ++i) {
        at(expected_dx, t * kIn + i) += at(d, t * kOut + o) * at(w, o * kIn + i);
        at(expected_dw, o * kIn + i) += at(d, t * kOut + o) * at(x_values, t * kIn + i);
      }
    }
  }
  for (int64_t i = 0; i < kTokens * kIn; ++i) EXPECT_NEAR(at(values_of(dx), i), at(expected_dx, i), tolerance(kOut));
  for (int64_t i = 0; i < kOut * kIn; ++i)
    EXPECT_NEAR(at(values_of(dweight), i), at(expected_dw, i), tolerance(kTokens));
  for (int64_t i = 0; i < kOut; ++i) EXPECT_NEAR(at(values_of(dbias), i), at(expected_db, i), tolerance(kTokens));
}

TEST_P(LinearTest, BackwardAccumulatesTwoMicroBatches) {
  const Tensor dy = random({kTokens, kOut}, 1), x = random({kTokens, kIn}, 2);
  Tensor whole_w = undefined({kOut, kIn}), whole_b = undefined({kOut});
  Tensor dweight = tests::undefined_tensor(device_, {kOut, kIn}, accumulator_of(GetParam()));
  Tensor dbias = tests::undefined_tensor(device_, {kOut}, accumulator_of(GetParam()));

  ops_.linear_backward_weight(dy, x, whole_w, whole_b, Write::overwrite);
  ops_.linear_backward_weight(dy.rows(0, 8), x.rows(0, 8), dweight, dbias, Write::overwrite);
  ops_.linear_backward_weight(dy.rows(8, kTokens), x.rows(8, kTokens), dweight, dbias, Write::accumulate);

  const Values w = values_of(whole_w), b = values_of(whole_b), split_w = values_of(dweight), split_b = values_of(dbias);
  for (int64_t i = 0; i < kOut * kIn; ++i) EXPECT_NEAR(at(split_w, i), at(w, i), tolerance(kTokens));
  for (int64_t i = 0; i < kOut; ++i) EXPECT_NEAR(at(split_b, i), at(b, i), tolerance(kTokens));
}

TEST_P(LinearTest, AcceptsNoTokens) {
  const Tensor dy = random({0, kOut}, 1), x = random({0, kIn}, 2), weight = random({kOut, kIn}, 3),
               bias = random({kOut}, 4);
  Tensor y = undefined({0, kOut}), dx = undefined({0, kIn}), dweight = undefined({kOut, kIn}),
         dbias = undefined({kOut});

  ops_.linear(x, weight, bias, y);
  ops_.linear_backward_input(dy, weight, dx, Write::overwrite);
  ops_.linear_backward_weight(dy, x, dweight, dbias, Write::overwrite);

  EXPECT_EQ(values_of(dweight), Values(kOut * kIn, 0));
  EXPECT_EQ(values_of(dbias), Values(kOut, 0));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, LinearTest, testing::Values(Dtype::fp32, Dtype::bf16, Dtype::fp64));

using LinearInFp64 = tests::CpuTest;

double dot(const Tensor& a, const Tensor& b) {
  const Values x = values_of(a), y = values_of(b);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// L = <dy, linear(x, w, b)> is linear in each operand, so that central differences are exact up to rounding.
TEST_F(LinearInFp64, BackwardMatchesFiniteDifferences) {
  const Tensor dy = tests::random_tensor(device_, {5, 4}, Dtype::fp64, 1);
  Tensor x = tests::random_tensor(device_, {5, 3}, Dtype::fp64, 2),
         w = tests::random_tensor(device_, {4, 3}, Dtype::fp64, 3);
  Tensor b = tests::random_tensor(device_, {4}, Dtype::fp64, 4),
         y = tests::undefined_tensor(device_, {5, 4}, Dtype::fp64);
  Tensor dx = tests::undefined_tensor(device_, {5, 3}, Dtype::fp64),
         dw = tests::undefined_tensor(device_, {4, 3}, Dtype::fp64);
  Tensor db = tests::undefined_tensor(device_, {4}, Dtype::fp64);
  ops_.linear_backward_input(dy, w, dx, Write::overwrite);
  ops_.linear_backward_weight(dy, x, dw, db, Write::overwrite);

  const auto loss_with = [&](Tensor& operand, int64_t index, double value) {
    operand.data<double>()[index] = value;
    ops_.linear(x, w, b, y);
    return dot(dy, y);
  };
  for (const auto& [operand, gradient] : {std::pair{&x, &dx}, std::pair{&w, &dw}, std::pair{&b, &db}}) {
    for (int64_t i = 0; i < operand->numel(); ++i) {
      const double value = operand->data<double>()[i];
      const double slope = (loss_with(*operand, i, value + 0.5) - loss_with(*operand, i, value - 0.5));
      operand->data<double>()[i] = value;
      EXPECT_NEAR(gradient->data<double>()[i], slope, tests::sum_tolerance(Dtype::fp64, 60, 60));
    }
  }
}

TEST_F(LinearInFp64, BiasGradientDoesNotDependOnTheNumberOfThreads) {
  const Tensor dy = tests::random_tensor(device_, {501, 333}, Dtype::fp32, 1),
               x = tests::random_tensor(device_, {501, 1}, Dtype::fp32, 2);
  std::vector<Tensor> gradients;
  for (const int num_threads : {1, 2}) {
    omp_set_num_threads(num_threads);
    Tensor dweight = tests::undefined_tensor(device_, {333, 1}, Dtype::fp32);
    gradients.push_back(tests::undefined_tensor(device_, {333}, Dtype::fp32));
    ops_.linear_backward_weight(dy, x, dweight, gradients.back(), Write::overwrite);
  }

  EXPECT_TRUE(tests::is_same(gradients[0], gradients[1]));
}

}  // namespace
}  // namespace tensor
