#include <gtest/gtest.h>

#include <numbers>

#include "tests/support/tensors.h"

namespace tensor {
namespace {

using tests::Values;

constexpr Activation kKinds[] = {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu_squared,
                                 Activation::swiglu, Activation::geglu};

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double naive(Activation kind, double x, double up) {
  switch (kind) {
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::gelu_erf:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::relu_squared:
      return std::pow(std::max(x, 0.0), 2);
    case Activation::swiglu:
      return x / (1 + std::exp(-x)) * up;
    case Activation::geglu:
      return gelu_tanh(x) * up;
  }
  return 0;
}

/// By central differences with a fourth-order stencil, in fp64: good to about 1e-11.
double naive_slope(Activation kind, double x, double up) {
  constexpr double h = 1e-3;
  if (kind == Activation::relu_squared) return 2 * std::max(x, 0.0);  // has a kink
  const auto f = [&](double at) { return naive(kind, at, up); };
  return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h);
}

/// Inputs from -12 to 12 and 0 itself, where tails and cancellation lie.
Values inputs(int64_t count, uint64_t seed) {
  Values values = tests::random_values(count, seed);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 11 == 0 ? 0 : values[i] * 3;
  return values;
}

class ActivationTest : public tests::CpuTest {
 protected:
  /// What one evaluation may be off by: a few roundings of intermediate results that are at most |x|.
  static double tolerance(Dtype dtype, double x, double factor, double result) {
    const double rounding = dtype == Dtype::bf16 ? 0x1p-8 * std::abs(result) : 0;
    return 16 * tests::epsilon(accumulator_of(dtype)) * (1 + std::abs(x)) * std::abs(factor) + rounding;
  }
};

TEST_F(ActivationTest, MatchesNaiveLoop) {
  for (const Activation kind : kKinds) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp64}) {
      const int64_t tokens = 7, ffn = 37, width = is_gated(kind) ? 2 * ffn : ffn;
      const Tensor x = tests::make_tensor(device_, {tokens, width}, dtype, inputs(tokens * width, 1));
      Tensor y = tests::undefined_tensor(device_, {tokens, ffn}, dtype);

      ops_.activation(kind, x, y);

      const Values in = tests::values_of(x), out = tests::values_of(y);
      for (int64_t i = 0; i < tokens * ffn; ++i) {
        const size_t at = static_cast<size_t>(i / ffn * width + i % ffn);
        const double up = is_gated(kind) ? in[at + static_cast<size_t>(ffn)] : 1, expected = naive(kind, in[at], up);
        const double factor = up * (1 + std::abs(in[at]));
        ASSERT_NEAR(out[static_cast<size_t>(i)], expected, tolerance(dtype, in[at], factor, expected))
            << "kind " << static_cast<int>(kind) << " in " << to_string(dtype) << " of " << in[at];
      }
    }
  }
}

TEST_F(ActivationTest, BackwardMatchesFiniteDifferences) {
  for (const Activation kind : kKinds) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp64}) {
      const int64_t tokens = 7, ffn = 37, width = is_gated(kind) ? 2 * ffn : ffn;
      const Tensor x = tests::make_tensor(device_, {tokens, width}, dtype, inputs(tokens * width, 1));
      const Tensor dy = tests::random_tensor(device_, {tokens, ffn}, dtype, 2);
      Tensor dx = tests::undefined_tensor(device_, {tokens, width}, dtype);

      ops_.activation_backward(kind, dy, x, dx);

      const Values in = tests::values_of(x), d = tests::values_of(dy), out = tests::values_of(dx);
      for (int64_t i = 0; i < tokens * ffn; ++i) {
        const size_t at = static_cast<size_t>(i / ffn * width + i % ffn), up_at = at + static_cast<size_t>(ffn);
        const double up = is_gated(kind) ? in[up_at] : 1, g = d[static_cast<size_t>(i)];
        const double expected = g * naive_slope(kind, in[at], up), factor = g * up * (1 + std::abs(in[at]));
        constexpr double kStencil = 1e-10;
        ASSERT_NEAR(out[at], expected, tolerance(dtype, in[at], factor, expected) + kStencil)
            << "kind " << static_cast<int>(kind) << " in " << to_string(dtype) << " of " << in[at];
        if (!is_gated(kind)) continue;
        const double d_up = g * naive(kind, in[at], 1);
        ASSERT_NEAR(out[up_at], d_up, tolerance(dtype, in[at], g * (1 + std::abs(in[at])), d_up));
      }
    }
  }
}

TEST_F(ActivationTest, IsFiniteFarOutAndKeepsNan) {
  for (const Activation kind : kKinds) {
    const int64_t ffn = 4, width = is_gated(kind) ? 8 : 4;
    Values values(static_cast<size_t>(width), 1.0);
    values[0] = -1e4;
    values[1] = 1e4;
    values[2] = std::nan("");
    const Tensor x = tests::make_tensor(device_, {1, width}, Dtype::fp32, values);
    const Tensor dy = tests::make_tensor(device_, {1, ffn}, Dtype::fp32, Values(4, 1.0));
    Tensor y = tests::undefined_tensor(device_, {1, ffn}, Dtype::fp32),
           dx = tests::undefined_tensor(device_, {1, width}, Dtype::fp32);

    ops_.activation(kind, x, y);
    ops_.activation_backward(kind, dy, x, dx);

    const Values out = tests::values_of(y), gradient = tests::values_of(dx);
    EXPECT_EQ(out[0], 0);
    EXPECT_EQ(out[1], kind == Activation::relu_squared ? 1e8 : 1e4);
    EXPECT_TRUE(std::isnan(out[2]));
    EXPECT_EQ(gradient[0], 0);
    EXPECT_EQ(gradient[1], kind == Activation::relu_squared ? 2e4 : 1);
    EXPECT_TRUE(std::isnan(gradient[2]));
  }
}

TEST_F(ActivationTest, TakesNoTokens) {
  const Tensor x = device_.allocate({0, 8}, Dtype::fp32, MemoryCategory::other);
  Tensor y = device_.allocate({0, 4}, Dtype::fp32, MemoryCategory::other),
         dx = device_.allocate({0, 8}, Dtype::fp32, MemoryCategory::other);

  EXPECT_NO_THROW(ops_.activation(Activation::swiglu, x, y));
  EXPECT_NO_THROW(ops_.activation_backward(Activation::swiglu, y, x, dx));
}

TEST_F(ActivationTest, DoesNotDependOnTheNumberOfThreads) {
  const Tensor x = tests::random_tensor(device_, {301, 150}, Dtype::fp32, 1);
  Tensor y = tests::undefined_tensor(device_, {301, 75}, Dtype::fp32),
         same = tests::undefined_tensor(device_, {301, 75}, Dtype::fp32);

  ops_.activation(Activation::geglu, x, y);
  const Backend one = make_cpu_backend({.num_threads = 1});  // from here on, one thread
  one.ops->activation(Activation::geglu, x, same);

  EXPECT_TRUE(tests::is_same(y, same));
}

}  // namespace
}  // namespace tensor
