#include <omp.h>

#include "tests/support/tensors.h"

namespace tensor {
namespace {

using tests::Values;
using tests::values_of;

constexpr int64_t kRows = 6, kHidden = 130, kFirstRow = 10;
const Values kIndices{10, 15, 12, 9, 16, 10, 12, 12, 0, 1000};  // 9, 16, 0 and 1000 belong to other ranks

class EmbeddingTest : public tests::CpuTest, public testing::WithParamInterface<Dtype> {
 protected:
  Tensor indices(const Values& values) {
    return tests::make_tensor(device_, {static_cast<int64_t>(values.size())}, Dtype::int32, values);
  }
};

/// Row of the table that a token reads, or -1.
int64_t own_row(double index) {
  const int64_t row = static_cast<int64_t>(index) - kFirstRow;
  return 0 <= row && row < kRows ? row : -1;
}

TEST_P(EmbeddingTest, CopiesOwnRowsAndZeroesTheRest) {
  const Tensor table = tests::random_tensor(device_, {kRows, kHidden}, GetParam(), 1);
  Tensor y = tests::undefined_tensor(device_, {10, kHidden}, GetParam());

  ops_.embedding(indices(kIndices), table, kFirstRow, y, Write::overwrite);

  for (int64_t t = 0; t < 10; ++t) {
    const int64_t row = own_row(kIndices[static_cast<size_t>(t)]);
    EXPECT_EQ(values_of(y.rows(t, t + 1)), row < 0 ? Values(kHidden, 0) : values_of(table.rows(row, row + 1)));
  }
}

TEST_P(EmbeddingTest, AddsToWhatIsThere) {
  const Tensor table = tests::random_tensor(device_, {kRows, kHidden}, GetParam(), 1);
  Tensor y = tests::make_tensor(device_, {10, kHidden}, GetParam(), Values(10 * kHidden, 1));

  ops_.embedding(indices(kIndices), table, kFirstRow, y, Write::accumulate);

  const Values sums = values_of(y), table_values = values_of(table);
  for (int64_t i = 0; i < y.numel(); ++i) {
    const int64_t row = own_row(kIndices[static_cast<size_t>(i / kHidden)]);
    const double added = row < 0 ? 0 : table_values[static_cast<size_t>(row * kHidden + i % kHidden)];
    EXPECT_NEAR(sums[static_cast<size_t>(i)], 1 + added, tests::epsilon(GetParam()) * (1 + std::abs(added)));
  }
}

TEST_P(EmbeddingTest, BackwardGathersEveryTokenOfARow) {
  const Tensor dy = tests::random_tensor(device_, {10, kHidden}, GetParam(), 1);
  Tensor dtable = tests::undefined_tensor(device_, {kRows, kHidden}, accumulator_of(GetParam()));

  ops_.embedding_backward(indices(kIndices), dy, kFirstRow, dtable, Write::overwrite);

  Values expected(kRows * kHidden);
  const Values gradients = values_of(dy);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int64_t row = own_row(kIndices[i / kHidden]);
    if (row >= 0) expected[static_cast<size_t>(row) * kHidden + i % kHidden] += gradients[i];
  }
  const Values gathered = values_of(dtable);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(gathered[i], expected[i], tests::sum_tolerance(dtable.dtype(), 3, 10));
  }
}

TEST_P(EmbeddingTest, BackwardTwiceIsTwiceTheGradient) {
  const Tensor dy = tests::random_tensor(device_, {10, kHidden}, GetParam(), 1),
               tokens = indices({10, 11, 12, 13, 14, 15, 0, 0, 0, 0});
  Tensor once = tests::undefined_tensor(device_, {kRows, kHidden}, GetParam());
  Tensor twice = tests::undefined_tensor(device_, {kRows, kHidden}, GetParam());

  ops_.embedding_backward(tokens, dy, kFirstRow, once, Write::overwrite);
  ops_.embedding_backward(tokens, dy, kFirstRow, twice, Write::overwrite);
  ops_.embedding_backward(tokens, dy, kFirstRow, twice, Write::accumulate);

  const Values a = values_of(once), b = values_of(twice);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(b[i], 2 * a[i]);
}

TEST_P(EmbeddingTest, AcceptsNoTokens) {
  const Tensor none = indices({}), table = tests::random_tensor(device_, {kRows, kHidden}, GetParam(), 1);
  Tensor y = tests::undefined_tensor(device_, {0, kHidden}, GetParam());
  Tensor dtable = tests::undefined_tensor(device_, {kRows, kHidden}, GetParam());

  ops_.embedding(none, table, 0, y, Write::overwrite);
  ops_.embedding_backward(none, y, 0, dtable, Write::overwrite);

  EXPECT_EQ(values_of(dtable), Values(kRows * kHidden, 0));
}

TEST_P(EmbeddingTest, BackwardDoesNotDependOnTheNumberOfThreads) {
  const Tensor dy = tests::random_tensor(device_, {400, kHidden}, GetParam(), 1);
  Values repeated(400);
  for (size_t i = 0; i < repeated.size(); ++i) repeated[i] = static_cast<double>(i * i % 7 + 9);
  std::vector<Tensor> gradients;
  for (const int num_threads : {1, 2}) {
    omp_set_num_threads(num_threads);
    gradients.push_back(tests::undefined_tensor(device_, {kRows, kHidden}, accumulator_of(GetParam())));
    ops_.embedding_backward(indices(repeated), dy, kFirstRow, gradients.back(), Write::overwrite);
  }

  EXPECT_TRUE(tests::is_same(gradients[0], gradients[1]));
}

INSTANTIATE_TEST_SUITE_P(Dtypes, EmbeddingTest, testing::Values(Dtype::fp32, Dtype::bf16, Dtype::fp64));

}  // namespace
}  // namespace tensor
