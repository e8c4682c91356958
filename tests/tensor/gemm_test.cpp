#include <omp.h>

#include "tests/support/tensors.h"

namespace tensor {
namespace {

using tests::Values;
using tests::values_of;

struct Sizes {
  int64_t m, n, k;
};

struct GemmCase {
  Dtype dtype;
  Transpose transpose_a, transpose_b;
  Sizes sizes;
};

/// Products and the sums of their absolute values, which bound the rounding errors.
struct NaiveProduct {
  Values values, magnitudes;
};

NaiveProduct naive_product(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b,
                           const Sizes& sizes) {
  const Values a_values = values_of(a), b_values = values_of(b);
  NaiveProduct product;
  for (int64_t i = 0; i < sizes.m; ++i) {
    for (int64_t j = 0; j < sizes.n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t l = 0; l < sizes.k; ++l) {
        const int64_t a_index = transpose_a == Transpose::no ? i * sizes.k + l : l * sizes.m + i;
        const int64_t b_index = transpose_b == Transpose::no ? l * sizes.n + j : j * sizes.k + l;
        const double term = a_values[static_cast<size_t>(a_index)] * b_values[static_cast<size_t>(b_index)];
        sum += term;
        magnitude += std::abs(term);
      }
      product.values.push_back(sum);
      product.magnitudes.push_back(magnitude);
    }
  }
  return product;
}

void expect_near(const Tensor& c, const NaiveProduct& expected, const Values& before, int64_t length) {
  const Values values = values_of(c);
  for (size_t i = 0; i < values.size(); ++i) {
    const double added = before.empty() ? 0 : before[i];
    const double magnitude = expected.magnitudes[i] + std::abs(added);
    EXPECT_NEAR(values[i], expected.values[i] + added,
                tests::sum_tolerance(c.dtype(), static_cast<double>(length + 1), magnitude))
        << "at " << i;
  }
}

class GemmTest : public tests::CpuTest, public testing::WithParamInterface<GemmCase> {
 protected:
  /// A matrix in the middle of a wider one, so that its rows lie apart.
  Tensor strided(int64_t rows, int64_t columns, uint64_t seed) {
    wide_.push_back(tests::random_tensor(device_, {rows, columns + 5}, GetParam().dtype, seed));
    return wide_.back().columns(2, columns + 2);
  }
  Tensor operand(Transpose transpose, int64_t rows, int64_t columns, uint64_t seed) {
    return transpose == Transpose::no ? strided(rows, columns, seed) : strided(columns, rows, seed);
  }

  std::vector<Tensor> wide_;
};

TEST_P(GemmTest, MatchesNaiveLoop) {
  const auto& [dtype, transpose_a, transpose_b, sizes] = GetParam();
  const Tensor a = operand(transpose_a, sizes.m, sizes.k, 1), b = operand(transpose_b, sizes.k, sizes.n, 2);
  Tensor c = tests::undefined_tensor(device_, {sizes.m, sizes.n}, dtype);

  ops_.gemm(a, transpose_a, b, transpose_b, c, Write::overwrite);

  expect_near(c, naive_product(a, transpose_a, b, transpose_b, sizes), {}, sizes.k);
}

TEST_P(GemmTest, AccumulatesOnlyInsideItsColumns) {
  const auto& [dtype, transpose_a, transpose_b, sizes] = GetParam();
  const Tensor a = operand(transpose_a, sizes.m, sizes.k, 1), b = operand(transpose_b, sizes.k, sizes.n, 2);
  Tensor c = strided(sizes.m, sizes.n, 3);
  const Values before = values_of(c), left = values_of(wide_.back().columns(0, 2));

  ops_.gemm(a, transpose_a, b, transpose_b, c, Write::accumulate);

  expect_near(c, naive_product(a, transpose_a, b, transpose_b, sizes), before, sizes.k);
  EXPECT_EQ(values_of(wide_.back().columns(0, 2)), left);
}

std::vector<GemmCase> all_cases() {
  std::vector<GemmCase> cases;
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp64}) {
    for (const Transpose transpose_a : {Transpose::no, Transpose::yes}) {
      for (const Transpose transpose_b : {Transpose::no, Transpose::yes}) {
        for (const Sizes& sizes :
             {Sizes{1, 1, 1}, {7, 13, 5}, {33, 17, 65}, {64, 3, 100}, {0, 4, 3}, {4, 0, 3}, {4, 3, 0}})
          cases.push_back({dtype, transpose_a, transpose_b, sizes});
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(DtypesTransposesSizes, GemmTest, testing::ValuesIn(all_cases()));

using GemmOnCpu = tests::CpuTest;

TEST_F(GemmOnCpu, WritesFp32FromBf16Factors) {
  const Sizes sizes{9, 11, 300};
  const Tensor a = tests::random_tensor(device_, {9, 300}, Dtype::bf16, 1);
  const Tensor b = tests::random_tensor(device_, {11, 300}, Dtype::bf16, 2);
  Tensor c = tests::undefined_tensor(device_, {9, 11}, Dtype::fp32);

  ops_.gemm(a, Transpose::no, b, Transpose::yes, c, Write::overwrite);

  expect_near(c, naive_product(a, Transpose::no, b, Transpose::yes, sizes), {}, sizes.k);
}

TEST_F(GemmOnCpu, RefusesSizesThatDoNotFit) {
  const Tensor a = tests::random_tensor(device_, {2, 3}, Dtype::fp32, 1);
  const Tensor b = tests::random_tensor(device_, {2, 3}, Dtype::fp32, 2);
  Tensor c = tests::undefined_tensor(device_, {2, 3}, Dtype::fp32);

  EXPECT_THROW(ops_.gemm(a, Transpose::no, b, Transpose::no, c, Write::overwrite), InternalError);
}

TEST_F(GemmOnCpu, ReturnsItsScratchMemory) {
  const Tensor a = tests::random_tensor(device_, {20, 30}, Dtype::bf16, 1);
  const Tensor b = tests::random_tensor(device_, {30, 40}, Dtype::bf16, 2);
  Tensor c = tests::undefined_tensor(device_, {20, 40}, Dtype::bf16);

  ops_.gemm(a, Transpose::no, b, Transpose::no, c, Write::accumulate);

  EXPECT_EQ(device_.pool().use(MemoryCategory::workspace).live_bytes, 0);
  EXPECT_GT(device_.pool().use(MemoryCategory::workspace).peak_bytes, 0);
}

TEST_F(GemmOnCpu, DoesNotDependOnTheNumberOfThreads) {
  const Tensor a = tests::random_tensor(device_, {130, 257}, Dtype::fp32, 1);
  const Tensor b = tests::random_tensor(device_, {190, 257}, Dtype::fp32, 2);
  std::vector<Tensor> products;
  for (const int num_threads : {1, 2}) {
    omp_set_num_threads(num_threads);
    products.push_back(tests::undefined_tensor(device_, {130, 190}, Dtype::fp32));
    ops_.gemm(a, Transpose::no, b, Transpose::yes, products.back(), Write::overwrite);
  }

  EXPECT_TRUE(tests::is_same(products[0], products[1]));
}

}  // namespace
}  // namespace tensor
