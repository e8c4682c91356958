#include "tensor/tensor.h"

#include "tests/support/tensors.h"

namespace tensor {
namespace {

using TensorTest = tests::CpuTest;
using tests::Values;
using tests::values_of;

Values count_from(double first, int64_t count) {
  Values values;
  for (int64_t i = 0; i < count; ++i) values.push_back(first + static_cast<double>(i));
  return values;
}

TEST_F(TensorTest, IsAbsentByDefault) {
  const Tensor absent;

  EXPECT_FALSE(absent);
  EXPECT_FALSE(absent.view());
  EXPECT_EQ(absent.numel(), 0);
}

TEST_F(TensorTest, IsPresentWithNoElements) {
  const Tensor empty = device_.allocate({0, 3}, Dtype::fp32, MemoryCategory::other);

  EXPECT_TRUE(empty);
  EXPECT_EQ(empty.numel(), 0);
}

TEST_F(TensorTest, SlicesRows) {
  const Tensor x = tests::make_tensor(device_, {3, 2}, Dtype::fp32, count_from(0, 6));

  EXPECT_EQ(values_of(x.rows(1, 3)), (Values{2, 3, 4, 5}));
  EXPECT_EQ(x.rows(2, 2).numel(), 0);
  EXPECT_THROW(x.rows(1, 4), InternalError);
}

TEST_F(TensorTest, SlicesColumnsThatLieApart) {
  const Tensor x = tests::make_tensor(device_, {2, 4}, Dtype::fp64, count_from(0, 8));
  const Tensor middle = x.columns(1, 3);

  EXPECT_EQ(values_of(middle), (Values{1, 2, 5, 6}));
  EXPECT_EQ(middle.row_stride(), 4);
  EXPECT_FALSE(middle.is_contiguous());
  EXPECT_EQ(values_of(middle.rows(1, 2)), (Values{5, 6}));
  EXPECT_THROW(x.columns(3, 5), InternalError);
}

TEST_F(TensorTest, ReshapesColumnsIntoHeads) {
  const Tensor x = tests::make_tensor(device_, {2, 6}, Dtype::fp32, count_from(0, 12));
  const Tensor heads = x.columns(2, 6).reshaped({2, 2, 2});

  EXPECT_EQ(values_of(heads), (Values{2, 3, 4, 5, 8, 9, 10, 11}));
  EXPECT_EQ(heads.row_stride(), 6);
  EXPECT_THROW(x.columns(2, 6).reshaped({4, 2}), InternalError);
  EXPECT_THROW(x.reshaped({5, 2}), InternalError);
}

TEST_F(TensorTest, ViewsWriteThrough) {
  Tensor x = tests::make_tensor(device_, {2, 2}, Dtype::bf16, {1, 2, 3, 4});
  Tensor right = x.columns(1, 2);
  device_.zero(right);

  EXPECT_EQ(values_of(x), (Values{1, 0, 3, 0}));
}

TEST_F(TensorTest, RefusesTheWrongElementType) {
  const Tensor x = device_.allocate({1}, Dtype::fp32, MemoryCategory::other);

  EXPECT_THROW(x.data<double>(), InternalError);
}

TEST(Bfloat16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(bfloat16(1.0f + 0x1p-8f).bits, 0x3f80);       // tie, to even
  EXPECT_EQ(bfloat16(1.0f + 0x3p-8f).bits, 0x3f82);       // tie, to even
  EXPECT_EQ(bfloat16(1.0f + 0x1.0002p-8f).bits, 0x3f81);  // above the tie
  EXPECT_EQ(bfloat16(-0x1.fffffep127f).bits, 0xff80);     // overflows to -infinity
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::nanf("")))));
}

TEST(Shape, KnowsItsSizes) {
  const Shape shape{2, 3, 4};

  EXPECT_EQ(shape.numel(), 24);
  EXPECT_EQ(shape.row_numel(), 12);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape.with(-1, 5).str(), "[2, 3, 5]");
  EXPECT_THROW((Shape{2, -1}), InternalError);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1}), InternalError);
}

}  // namespace
}  // namespace tensor
