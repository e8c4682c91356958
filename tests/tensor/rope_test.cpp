#include <gtest/gtest.h>

#include "tests/support/tensors.h"

namespace tensor {
namespace {

using tests::Values;

constexpr int64_t kMaxPosition = 40;

double angle(int64_t position, int64_t pair, int64_t rotary_dim) {
  return static_cast<double>(position) *
         std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary_dim));
}

Values table_values(int64_t rotary_dim) {
  Values table;
  for (int64_t position = 0; position < kMaxPosition; ++position) {
    for (int64_t i = 0; i < rotary_dim / 2; ++i) table.push_back(std::cos(angle(position, i, rotary_dim)));
    for (int64_t i = 0; i < rotary_dim / 2; ++i) table.push_back(std::sin(angle(position, i, rotary_dim)));
  }
  return table;
}

/// x [tokens, heads, head_dim] * cos + rotate_half(x) * sin over the first rotary_dim features.
Values naive_rope(const Values& x, const Values& positions, Shape shape, int64_t rotary_dim) {
  Values y = x;
  const int64_t half = rotary_dim / 2;
  for (int64_t row = 0; row < shape[0] * shape[1]; ++row) {
    const auto position = static_cast<int64_t>(positions[static_cast<size_t>(row / shape[1])]);
    for (int64_t i = 0; i < rotary_dim; ++i) {
      const int64_t at = row * shape[2];
      const double rotated = i < half ? -x[static_cast<size_t>(at + i + half)] : x[static_cast<size_t>(at + i - half)];
      const double a = angle(position, i % half, rotary_dim);
      y[static_cast<size_t>(at + i)] = x[static_cast<size_t>(at + i)] * std::cos(a) + rotated * std::sin(a);
    }
  }
  return y;
}

class RopeTest : public tests::CpuTest {
 protected:
  Tensor table(int64_t rotary_dim, Dtype dtype) {
    return tests::make_tensor(device_, {kMaxPosition, rotary_dim}, accumulator_of(dtype), table_values(rotary_dim));
  }
  Tensor positions(int64_t tokens) {
    Values values;
    for (int64_t i = 0; i < tokens; ++i) values.push_back(static_cast<double>(i * 17 % kMaxPosition));
    return tests::make_tensor(device_, {tokens}, Dtype::int32, values);
  }
};

TEST_F(RopeTest, MatchesNaiveLoopAndLeavesTheRestAlone) {
  const Shape shape{23, 3, 10};
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp64}) {
    for (const int64_t rotary_dim : {2, 6, 10}) {
      Tensor fused = tests::random_tensor(device_, {23, 50}, dtype, 1);
      Values untouched = tests::values_of(fused.columns(35, 50));
      Tensor x = fused.columns(5, 35).reshaped(shape);
      const Values expected = naive_rope(tests::values_of(x), tests::values_of(positions(23)), shape, rotary_dim);

      ops_.rope(x, positions(23), table(rotary_dim, dtype), Transpose::no);

      const Values values = tests::values_of(x);
      const double tolerance = tests::sum_tolerance(dtype, 2, 6);
      for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], tolerance) << "at " << i;
      EXPECT_EQ(tests::values_of(fused.columns(35, 50)), untouched);
    }
  }
}

TEST_F(RopeTest, TransposeIsTheGradient) {
  const Shape shape{5, 2, 8};
  Tensor x = tests::random_tensor(device_, shape, Dtype::fp64, 1),
         y = tests::random_tensor(device_, shape, Dtype::fp64, 2);
  const Values x_values = tests::values_of(x), y_values = tests::values_of(y);

  ops_.rope(x, positions(5), table(6, Dtype::fp64), Transpose::no);
  ops_.rope(y, positions(5), table(6, Dtype::fp64), Transpose::yes);

  double forward = 0, backward = 0;  // <R x, y> = <x, R^T y>
  for (size_t i = 0; i < x_values.size(); ++i) {
    forward += tests::values_of(x)[i] * y_values[i];
    backward += x_values[i] * tests::values_of(y)[i];
  }
  EXPECT_NEAR(forward, backward, 1e-12);
}

TEST_F(RopeTest, TransposeRotatesBack) {
  Tensor x = tests::random_tensor(device_, {7, 2, 8}, Dtype::fp64, 1);
  const Values before = tests::values_of(x);

  ops_.rope(x, positions(7), table(8, Dtype::fp64), Transpose::no);
  EXPECT_NE(tests::values_of(x), before);
  ops_.rope(x, positions(7), table(8, Dtype::fp64), Transpose::yes);

  const Values after = tests::values_of(x);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-14);
}

TEST_F(RopeTest, TakesNoTokens) {
  Tensor x = device_.allocate({0, 2, 8}, Dtype::fp32, MemoryCategory::other);

  EXPECT_NO_THROW(ops_.rope(x, positions(0), table(8, Dtype::fp32), Transpose::no));
}

TEST_F(RopeTest, DoesNotDependOnTheNumberOfThreads) {
  Tensor x = tests::random_tensor(device_, {700, 3, 26}, Dtype::fp32, 1),
         same = tests::random_tensor(device_, {700, 3, 26}, Dtype::fp32, 1);
  ops_.rope(x, positions(700), table(26, Dtype::fp32), Transpose::no);

  const Backend one = make_cpu_backend({.num_threads = 1});
  one.ops->rope(same, positions(700), table(26, Dtype::fp32), Transpose::no);

  EXPECT_TRUE(tests::is_same(x, same));
}

}  // namespace
}  // namespace tensor
