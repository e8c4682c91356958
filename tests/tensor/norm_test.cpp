#include <gtest/gtest.h>

#include "tests/support/tensors.h"

namespace tensor {
namespace {

using tests::Values;

constexpr Dtype kDtypes[] = {Dtype::fp32, Dtype::bf16, Dtype::fp64};
constexpr Norm kNorms[] = {{NormKind::layer_norm, 1e-5}, {NormKind::rms_norm, 1e-6}};

/// x, y and dy [rows, dim]; a rank-3 tensor's heads are rows too.
struct Expected {
  Values y, mean, inverse_deviation, dx, dweight, dbias;
};

Values naive_stats(const Norm& norm, const Values& x, size_t row, size_t dim) {
  double mean = 0, squares = 0;
  for (size_t i = 0; i < dim; ++i) mean += x[row * dim + i] / static_cast<double>(dim);
  if (norm.kind == NormKind::rms_norm) mean = 0;
  for (size_t i = 0; i < dim; ++i) squares += std::pow(x[row * dim + i] - mean, 2) / static_cast<double>(dim);
  return {mean, 1 / std::sqrt(squares + norm.eps)};
}

Expected naive_norm(const Norm& norm, const Values& x, const Values& weight, const Values& bias, const Values& dy) {
  const size_t dim = weight.size(), rows = x.size() / dim;
  Expected e{Values(x.size()), Values(rows), Values(rows), Values(x.size()), Values(dim), Values(dim)};
  for (size_t row = 0; row < rows; ++row) {
    const Values stats = naive_stats(norm, x, row, dim);
    e.mean[row] = stats[0];
    e.inverse_deviation[row] = stats[1];
    double mean_g = 0, mean_gu = 0;
    for (size_t i = 0; i < dim; ++i) {
      const double u = (x[row * dim + i] - stats[0]) * stats[1], d = dy[row * dim + i];
      e.y[row * dim + i] = u * weight[i] + (bias.empty() ? 0 : bias[i]);
      e.dweight[i] += d * u;
      e.dbias[i] += d;
      mean_g += norm.kind == NormKind::layer_norm ? d * weight[i] / static_cast<double>(dim) : 0;
      mean_gu += d * weight[i] * u / static_cast<double>(dim);
    }
    for (size_t i = 0; i < dim; ++i) {
      const double u = (x[row * dim + i] - stats[0]) * stats[1];
      e.dx[row * dim + i] = (dy[row * dim + i] * weight[i] - mean_g - u * mean_gu) * stats[1];
    }
  }
  return e;
}

/// Of normally distributed rows: values are a few, sums as long as a row or as the rows.
void expect_close(const Tensor& actual, const Values& expected, int64_t length) {
  double magnitude = 4;
  for (const double value : expected) magnitude = std::max(magnitude, std::abs(value));
  const double tolerance = tests::sum_tolerance(actual.dtype(), static_cast<double>(length), magnitude);
  const Values values = tests::values_of(actual);
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], tolerance) << "at " << i;
}

class NormTest : public tests::CpuTest {
 protected:
  /// Rows of x lie apart: they are a part of a wider matrix.
  void expect_matches_naive(const Norm& norm, Shape shape, Dtype dtype) {
    SCOPED_TRACE(shape.str() + " in " + to_string(dtype) + (norm.kind == NormKind::layer_norm ? " layer" : " rms"));
    const int64_t dim = shape[-1], rows = shape.numel() / std::max<int64_t>(1, dim);
    Tensor wide = tests::undefined_tensor(device_, {shape[0], shape.row_numel() + 3}, dtype);
    Tensor x = wide.columns(1, shape.row_numel() + 1).reshaped(shape);
    tests::fill(x, tests::random_values(shape.numel(), 1));
    const Tensor weight = tests::random_tensor(device_, {dim}, dtype, 2);
    const Tensor bias = norm.kind == NormKind::layer_norm ? tests::random_tensor(device_, {dim}, dtype, 3) : Tensor();
    const Tensor dy = tests::random_tensor(device_, shape, dtype, 4);
    Tensor y = tests::undefined_tensor(device_, shape, dtype), dx = tests::undefined_tensor(device_, shape, dtype);
    Tensor stats = tests::undefined_tensor(device_, {rows, 2}, accumulator_of(dtype));
    Tensor dweight = tests::undefined_tensor(device_, {dim}, accumulator_of(dtype));
    Tensor dbias = bias ? tests::undefined_tensor(device_, {dim}, dtype) : Tensor();

    ops_.norm(norm, x, weight, bias, y, stats);
    ops_.norm_backward_input(norm, dy, x, weight, stats, dx, Write::overwrite);
    ops_.norm_backward_weight(norm, dy, x, stats, dweight, dbias, Write::overwrite);

    const Expected e = naive_norm(norm, tests::values_of(x), tests::values_of(weight),
                                  bias ? tests::values_of(bias) : Values(), tests::values_of(dy));
    expect_close(y, e.y, dim);
    expect_close(dx, e.dx, dim);
    expect_close(dweight, e.dweight, rows);
    if (dbias) expect_close(dbias, e.dbias, rows);
    Values pairs;
    for (size_t row = 0; row < e.mean.size(); ++row) {
      pairs.insert(pairs.end(), {e.mean[row], e.inverse_deviation[row]});
    }
    expect_close(stats, pairs, dim);
  }
};

TEST_F(NormTest, MatchesNaiveLoop) {
  for (const Norm& norm : kNorms) {
    for (const Dtype dtype : kDtypes) {
      for (const Shape& shape : {Shape{1, 8}, Shape{7, 33}, Shape{200, 384}, Shape{5, 3, 17}, Shape{40, 4, 64}}) {
        expect_matches_naive(norm, shape, dtype);
      }
    }
  }
}

TEST_F(NormTest, NormalisesTheSumWithTheResidual) {
  for (const Norm& norm : kNorms) {
    for (const Dtype dtype : kDtypes) {
      const Tensor x = tests::random_tensor(device_, {7, 33}, dtype, 1),
                   residual = tests::random_tensor(device_, {7, 33}, dtype, 2);
      const Tensor weight = tests::random_tensor(device_, {33}, dtype, 3);
      Tensor expected_sum = tests::undefined_tensor(device_, {7, 33}, dtype);
      Values sums = tests::values_of(x);
      const Values addends = tests::values_of(residual);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += addends[i];
      tests::fill(expected_sum, sums);
      Tensor expected_y = tests::undefined_tensor(device_, {7, 33}, dtype),
             y = tests::undefined_tensor(device_, {7, 33}, dtype);
      Tensor sum = tests::undefined_tensor(device_, {7, 33}, dtype);
      Tensor expected_stats = tests::undefined_tensor(device_, {7, 2}, accumulator_of(dtype));
      Tensor stats = tests::undefined_tensor(device_, {7, 2}, accumulator_of(dtype));
      ops_.norm(norm, expected_sum, weight, {}, expected_y, expected_stats);

      ops_.add_norm(norm, x, residual, weight, {}, sum, y, stats);

      EXPECT_TRUE(tests::is_same(sum, expected_sum));
      EXPECT_TRUE(tests::is_same(y, expected_y));
      EXPECT_TRUE(tests::is_same(stats, expected_stats));
    }
  }
}

TEST_F(NormTest, BackwardIsTheDerivativeOfForward) {
  for (const Norm& norm : kNorms) {
    Tensor x = tests::random_tensor(device_, {3, 7}, Dtype::fp64, 1),
           weight = tests::random_tensor(device_, {7}, Dtype::fp64, 2);
    Tensor bias = tests::random_tensor(device_, {7}, Dtype::fp64, 3);
    const Tensor dy = tests::random_tensor(device_, {3, 7}, Dtype::fp64, 4);
    Tensor y = tests::undefined_tensor(device_, {3, 7}, Dtype::fp64),
           stats = tests::undefined_tensor(device_, {3, 2}, Dtype::fp64);
    Tensor dx = tests::undefined_tensor(device_, {3, 7}, Dtype::fp64),
           dweight = tests::undefined_tensor(device_, {7}, Dtype::fp64);
    Tensor dbias = tests::undefined_tensor(device_, {7}, Dtype::fp64);
    const auto loss = [&] {
      ops_.norm(norm, x, weight, bias, y, stats);
      double sum = 0;
      for (int64_t i = 0; i < y.numel(); ++i) sum += y.data<double>()[i] * dy.data<double>()[i];
      return sum;
    };
    loss();

    ops_.norm_backward_input(norm, dy, x, weight, stats, dx, Write::overwrite);
    ops_.norm_backward_weight(norm, dy, x, stats, dweight, dbias, Write::overwrite);

    for (auto [operand, gradient] : {std::pair{&x, &dx}, {&weight, &dweight}, {&bias, &dbias}}) {
      for (int64_t i = 0; i < operand->numel(); ++i) {
        constexpr double kStep = 1e-5;
        double& value = operand->data<double>()[i];
        const double original = value;
        value = original + kStep;
        const double above = loss();
        value = original - kStep;
        EXPECT_NEAR(gradient->data<double>()[i], (above - loss()) / (2 * kStep), 1e-8);
        value = original;
      }
    }
  }
}

TEST_F(NormTest, AccumulatesGradientsAndWritesInPlace) {
  const Norm norm{NormKind::layer_norm, 1e-5};
  const Tensor x = tests::random_tensor(device_, {5, 9}, Dtype::fp64, 1),
               weight = tests::random_tensor(device_, {9}, Dtype::fp64, 2);
  Tensor y = tests::undefined_tensor(device_, {5, 9}, Dtype::fp64),
         stats = tests::undefined_tensor(device_, {5, 2}, Dtype::fp64);
  ops_.norm(norm, x, weight, {}, y, stats);
  Tensor dy = tests::random_tensor(device_, {5, 9}, Dtype::fp64, 3),
         dx = tests::random_tensor(device_, {5, 9}, Dtype::fp64, 4);
  Tensor dweight = tests::random_tensor(device_, {9}, Dtype::fp64, 5),
         dbias = tests::random_tensor(device_, {9}, Dtype::fp64, 6);
  Values expected_dx = tests::values_of(dx), expected_dweight = tests::values_of(dweight),
         expected_dbias = tests::values_of(dbias);
  const Expected e = naive_norm(norm, tests::values_of(x), tests::values_of(weight), {}, tests::values_of(dy));
  for (size_t i = 0; i < e.dx.size(); ++i) expected_dx[i] += e.dx[i];
  for (size_t i = 0; i < e.dweight.size(); ++i) expected_dweight[i] += e.dweight[i];
  for (size_t i = 0; i < e.dbias.size(); ++i) expected_dbias[i] += e.dbias[i];

  ops_.norm_backward_input(norm, dy, x, weight, stats, dx, Write::accumulate);
  ops_.norm_backward_weight(norm, dy, x, stats, dweight, dbias, Write::accumulate);
  ops_.norm_backward_input(norm, dy, x, weight, stats, dy, Write::overwrite);

  expect_close(dx, expected_dx, 9);
  expect_close(dweight, expected_dweight, 5);
  expect_close(dbias, expected_dbias, 5);
  expect_close(dy, e.dx, 9);
}

TEST_F(NormTest, VarianceSurvivesALargeMean) {
  Values values = tests::random_values(384, 1);
  const Tensor weight = tests::make_tensor(device_, {384}, Dtype::fp32, Values(384, 1.0));
  for (double& value : values) value = 1000 + std::round(value * 64) / 64;  // exact in fp32
  const Tensor x = tests::make_tensor(device_, {1, 384}, Dtype::fp32, values);
  Tensor y = tests::undefined_tensor(device_, {1, 384}, Dtype::fp32),
         stats = tests::undefined_tensor(device_, {1, 2}, Dtype::fp32);

  ops_.norm(kNorms[0], x, weight, {}, y, stats);

  // E[x^2] - mean^2 would be wrong by 1000^2 * epsilon = 12 %.
  const double deviation = naive_stats(kNorms[0], values, 0, 384)[1];
  EXPECT_NEAR(stats.data<float>()[1], deviation, deviation * 1e-4);
}

TEST_F(NormTest, OfNoTokensHasZeroWeightGradients) {
  const Tensor x = device_.allocate({0, 9}, Dtype::fp32, MemoryCategory::other),
               weight = tests::random_tensor(device_, {9}, Dtype::fp32, 1);
  Tensor y = device_.allocate({0, 9}, Dtype::fp32, MemoryCategory::other),
         stats = device_.allocate({0, 2}, Dtype::fp32, MemoryCategory::other);
  Tensor dweight = tests::undefined_tensor(device_, {9}, Dtype::fp32),
         dbias = tests::undefined_tensor(device_, {9}, Dtype::fp32);

  ops_.norm(kNorms[0], x, weight, {}, y, stats);
  ops_.norm_backward_input(kNorms[0], y, x, weight, stats, y, Write::overwrite);
  ops_.norm_backward_weight(kNorms[0], y, x, stats, dweight, dbias, Write::overwrite);

  EXPECT_EQ(tests::values_of(dweight), Values(9, 0.0));
  EXPECT_EQ(tests::values_of(dbias), Values(9, 0.0));
}

TEST_F(NormTest, DoesNotDependOnTheNumberOfThreads) {
  const auto run = [](int num_threads) {
    const Backend backend = make_cpu_backend({.num_threads = num_threads});
    Device& device = *backend.device;
    const Tensor x = tests::random_tensor(device, {500, 65}, Dtype::fp32, 1),
                 dy = tests::random_tensor(device, {500, 65}, Dtype::fp32, 2);
    const Tensor weight = tests::random_tensor(device, {65}, Dtype::fp32, 3);
    Tensor y = tests::undefined_tensor(device, {500, 65}, Dtype::fp32),
           stats = tests::undefined_tensor(device, {500, 2}, Dtype::fp32);
    Tensor dx = tests::undefined_tensor(device, {500, 65}, Dtype::fp32),
           dweight = tests::undefined_tensor(device, {65}, Dtype::fp32);
    Tensor dbias = tests::undefined_tensor(device, {65}, Dtype::fp32);
    backend.ops->norm(kNorms[0], x, weight, {}, y, stats);
    backend.ops->norm_backward_input(kNorms[0], dy, x, weight, stats, dx, Write::overwrite);
    backend.ops->norm_backward_weight(kNorms[0], dy, x, stats, dweight, dbias, Write::overwrite);
    Values all;
    for (const Tensor* result : {&y, &stats, &dx, &dweight, &dbias}) {
      const Values values = tests::values_of(*result);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };

  const Values one = run(1);

  EXPECT_EQ(run(2), one);
  EXPECT_EQ(run(3), one);
}

}  // namespace
}  // namespace tensor
