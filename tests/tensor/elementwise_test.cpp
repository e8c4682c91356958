#include "tests/support/tensors.h"

namespace tensor {
namespace {

using ElementwiseTest = tests::CpuTest;
using tests::Values;
using tests::values_of;

const Dtype kDtypes[] = {Dtype::fp32, Dtype::bf16, Dtype::fp64};

TEST_F(ElementwiseTest, AddMatchesNaiveLoopInEveryDtype) {
  for (const Dtype dtype : kDtypes) {
    const Tensor a = tests::random_tensor(device_, {40'001}, dtype, 1),
                 b = tests::random_tensor(device_, {40'001}, dtype, 2);
    Tensor y = tests::undefined_tensor(device_, {40'001}, dtype);

    ops_.add(a, b, y);

    const Values x1 = values_of(a), x2 = values_of(b), sums = values_of(y);
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_NEAR(sums[i], x1[i] + x2[i], tests::epsilon(dtype) * std::abs(x1[i] + x2[i])) << to_string(dtype);
    }
  }
}

TEST_F(ElementwiseTest, AddWorksInPlaceOnStridedRows) {
  Tensor wide = tests::random_tensor(device_, {9, 20}, Dtype::fp32, 1);
  const Values before = values_of(wide);
  Tensor left = wide.columns(0, 8);
  const Tensor right = wide.columns(10, 18);

  ops_.add(left, right, left);

  const Values after = values_of(wide);
  for (size_t i = 0; i < after.size(); ++i) {
    const float added = i % 20 < 8 ? static_cast<float>(before[i + 10]) : 0.0f;
    EXPECT_EQ(after[i], static_cast<float>(before[i]) + added);
  }
}

TEST_F(ElementwiseTest, AddAcceptsEmptyAndRefusesOtherShapes) {
  const Tensor empty = tests::undefined_tensor(device_, {0, 4}, Dtype::fp32);
  const Tensor x = tests::undefined_tensor(device_, {2, 3}, Dtype::fp32),
               other = tests::undefined_tensor(device_, {3, 2}, Dtype::fp32);
  Tensor empty_sum = empty.view(), y = x.view();

  ops_.add(empty, empty, empty_sum);
  EXPECT_THROW(ops_.add(x, other, y), InternalError);
}

TEST_F(ElementwiseTest, CastsBetweenAllFloatingDtypes) {
  for (const Dtype from : kDtypes) {
    for (const Dtype to : kDtypes) {
      const Tensor x = tests::random_tensor(device_, {33, 7}, from, 1);
      Tensor y = tests::undefined_tensor(device_, {33, 7}, to);
      ops_.cast(x, y);

      const Values expected = values_of(tests::make_tensor(device_, {33, 7}, to, values_of(x)));
      EXPECT_EQ(values_of(y), expected) << to_string(from) << " to " << to_string(to);
    }
  }
}

TEST_F(ElementwiseTest, CastKeepsNanInfinityAndRoundsBf16ToEven) {
  const Tensor x =
      tests::make_tensor(device_, {5}, Dtype::fp32, {std::nan(""), INFINITY, -INFINITY, 1 + 0x1p-8, 1 + 0x3p-8});
  Tensor y = tests::undefined_tensor(device_, {5}, Dtype::bf16);
  ops_.cast(x, y);

  const Values values = values_of(y);
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(Values(values.begin() + 1, values.end()), (Values{INFINITY, -INFINITY, 1, 1 + 0x1p-6}));
}

TEST_F(ElementwiseTest, CastsRowsThatLieApart) {
  const Tensor x = tests::random_tensor(device_, {6, 10}, Dtype::fp64, 1);
  Tensor wide = tests::make_tensor(device_, {6, 9}, Dtype::fp32, Values(54, -1));
  Tensor y = wide.columns(3, 7);
  ops_.cast(x.columns(5, 9), y);

  const Values expected = values_of(x.columns(5, 9)), computed = values_of(y);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(computed[i], static_cast<float>(expected[i]));
  EXPECT_EQ(values_of(wide.columns(0, 3)), Values(18, -1));
}

}  // namespace
}  // namespace tensor
