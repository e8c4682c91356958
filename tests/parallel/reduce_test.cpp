#include "parallel/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace parallel {
namespace {

using tensor::bfloat16;
using tensor::Dtype;

template <class T>
T reduced(std::vector<T> values, Reduction reduction) {
  std::vector<const void*> parts;
  for (const T& value : values) parts.push_back(&value);
  T result{};
  reduce_in_rank_order(parts, 1, tensor::dtype_of<T>, reduction, &result);
  return result;
}

TEST(ReduceInRankOrder, AddsFromTheLeft) {
  // The 1 is lost where it meets 1e10 first.
  EXPECT_EQ(reduced<float>({1.0F, 1e10F, -1e10F}, Reduction::sum), 0.0F);
  EXPECT_EQ(reduced<float>({1e10F, -1e10F, 1.0F}, Reduction::sum), 1.0F);
}

TEST(ReduceInRankOrder, RoundsBfloat16Once) {
  // 256 + 1 + 1: rounded after each addition this stays 256, in fp32 it is 258.
  const bfloat16 sum = reduced<bfloat16>({bfloat16(256), bfloat16(1), bfloat16(1)}, Reduction::sum);

  EXPECT_EQ(static_cast<float>(sum), 258.0F);
}

TEST(ReduceInRankOrder, KeepsIntegersExact) {
  const int64_t large = (int64_t{1} << 53) + 1;

  EXPECT_EQ(reduced<int64_t>({large, 2}, Reduction::sum), large + 2);
  EXPECT_EQ(reduced<int32_t>({-5, 3, -7}, Reduction::max), 3);
}

TEST(ReduceInRankOrder, CarriesNanThroughAMaximum) {
  const double nan = std::numeric_limits<double>::quiet_NaN();

  EXPECT_TRUE(std::isnan(reduced<double>({1, nan, 2}, Reduction::max)));
  EXPECT_TRUE(std::isnan(reduced<double>({nan, 1, 2}, Reduction::max)));
  EXPECT_EQ(reduced<double>({-3, -1, -2}, Reduction::max), -1);
}

TEST(ReduceInRankOrder, WorksInPlaceAtEverySize) {
  for (const int64_t count : {0, 1, 1023, 1024, 1025, 200'001}) {
    std::vector<float> a(static_cast<size_t>(count), 1.0F);
    std::vector<float> b(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) b[static_cast<size_t>(i)] = static_cast<float>(i);

    reduce_in_rank_order({a.data(), b.data()}, count, Dtype::fp32, Reduction::sum, b.data());

    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(b[static_cast<size_t>(i)], static_cast<float>(i) + 1) << i;
  }
}

}  // namespace
}  // namespace parallel
