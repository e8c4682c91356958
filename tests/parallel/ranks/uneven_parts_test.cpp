#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/parallel/ranks/rank_fixture.h"

namespace tests {
namespace {

using parallel::Communicator;
using parallel::Handle;
using parallel::Reduction;
using tensor::Dtype;
using tensor::Tensor;

constexpr int64_t kColumns = 3;

/// Numbers whose sum depends on the order of addition.
double uneven(int rank, int64_t index) {
  const auto x = static_cast<double>((static_cast<int64_t>(rank) + 3) * (index + 11) % 1009 - 500);
  return std::ldexp(x / 7, static_cast<int>((rank * 5 + index) % 23));
}

template <class T>
class UnevenParts : public RankTest {
 protected:
  /// Odd cuts, some empty, some larger than a message of the cutting setting; the first, the last or all get nothing.
  std::vector<std::vector<int64_t>> cuts() const {
    const auto cut = [this](auto&& rows_of) {
      std::vector<int64_t> rows;
      for (int r = 0; r < size(); ++r) rows.push_back(rows_of(r));
      return rows;
    };
    return {cut([](int r) { return r * 2 + 1; }),         cut([this](int r) { return size() - 1 - r; }),
            cut([](int r) { return r == 0 ? 0 : 1237; }), cut([this](int r) { return r == size() - 1 ? 0 : 5; }),
            cut([](int r) { return r % 2 * (401 + r); }), cut([](int) { return 0; }),
            cut([](int r) { return r == 0 ? 2001 : 0; })};
  }
  static int64_t total(const std::vector<int64_t>& rows) {
    return std::accumulate(rows.begin(), rows.end(), int64_t{0});
  }
  int64_t begin(const std::vector<int64_t>& rows) const {
    return std::accumulate(rows.begin(), rows.begin() + rank(), int64_t{0});
  }
  int64_t own(const std::vector<int64_t>& rows) const { return rows[static_cast<size_t>(rank())]; }
  Tensor own_place(const Tensor& whole, const std::vector<int64_t>& rows) const {
    return whole.rows(begin(rows), begin(rows) + own(rows));
  }
  /// Element i of the whole of which this rank has its rows only.
  Tensor whole_with_own_rows(const std::vector<int64_t>& rows) {
    const int64_t first = begin(rows) * kColumns, last = first + own(rows) * kColumns;
    return make<T>({total(rows), kColumns}, [=](int64_t i) { return first <= i && i < last ? element(0, i) : 99; });
  }
};
using Dtypes = ::testing::Types<float, double, tensor::bfloat16, int64_t>;
TYPED_TEST_SUITE(UnevenParts, Dtypes);

TYPED_TEST(UnevenParts, AreGatheredInRankOrder) {
  for (const auto& group : this->communicators()) {
    for (const auto& rows : this->cuts()) {
      const int64_t first = this->begin(rows) * kColumns;
      const Tensor part =
          this->template make<TypeParam>({this->own(rows), kColumns}, [&](int64_t i) { return element(0, first + i); });
      Tensor whole = this->template make<TypeParam>({this->total(rows), kColumns}, [](int64_t) { return 99; });

      group->all_gather_v(part, whole, rows).wait();

      this->template expect_elements<TypeParam>(whole, [](int64_t i) { return element(0, i); });
    }
  }
}

TYPED_TEST(UnevenParts, AreGatheredInPlace) {
  for (const auto& group : this->communicators()) {
    for (const auto& rows : this->cuts()) {
      Tensor whole = this->whole_with_own_rows(rows);
      const Tensor part = this->own_place(whole, rows);

      group->all_gather_v(part, whole, rows).wait();

      this->template expect_elements<TypeParam>(whole, [](int64_t i) { return element(0, i); });
    }
  }
}

TYPED_TEST(UnevenParts, AreScatteredOutOfPlace) {
  for (const auto& group : this->communicators()) {
    for (const auto& rows : this->cuts()) {
      const Tensor whole = this->template elements<TypeParam>({this->total(rows), kColumns});
      Tensor part = this->template make<TypeParam>({this->own(rows), kColumns}, [](int64_t) { return 99; });

      group->reduce_scatter_v(whole, part, rows).wait();

      const int64_t first = this->begin(rows) * kColumns;
      this->template expect_elements<TypeParam>(part, [&](int64_t i) { return this->sum_over_ranks(first + i); });
      this->template expect_elements<TypeParam>(
          whole, [&](int64_t i) { return element(this->rank(), i); }, "input");
    }
  }
}

TYPED_TEST(UnevenParts, ScatteredInPlaceAndGatheredAreBitwiseAnAllReduce) {
  for (const auto& group : this->communicators()) {
    for (const auto& rows : this->cuts()) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        const auto value = [this](int64_t i) { return uneven(this->rank(), i); };
        Tensor x = this->template make<TypeParam>({this->total(rows), kColumns}, value);
        Tensor whole = this->template make<TypeParam>({this->total(rows), kColumns}, value);
        Tensor part = this->own_place(whole, rows);

        Handle reduced = group->all_reduce(x, Reduction::sum);
        group->reduce_scatter_v(whole, part, rows).wait();
        group->all_gather_v(part, whole, rows).wait();
        reduced.wait();

        EXPECT_TRUE(x.bytes() == 0 || std::memcmp(x.raw(), whole.raw(), static_cast<size_t>(x.bytes())) == 0);
      }
    }
  }
}

class UnevenPartsOnTheBill : public RankTest {};

TEST_F(UnevenPartsOnTheBill, CountTheWhole) {
  if (size() == 1) GTEST_SKIP() << "a group of one records nothing";
  const auto group = factory_.make("grad", world());
  std::vector<int64_t> rows(static_cast<size_t>(size()), 0);
  rows[0] = 7;
  Tensor whole = elements<double>({7, 2});
  Tensor part = rank() == 0 ? whole.view() : whole.rows(7, 7);

  group->reduce_scatter_v(whole, part, rows).wait();
  group->all_gather_v(part, whole, rows).wait();

  EXPECT_EQ(ledger_.step(), (parallel::Bill{{{"grad", parallel::Collective::reduce_scatter, Dtype::fp64}, {1, 14, 112}},
                                            {{"grad", parallel::Collective::all_gather, Dtype::fp64}, {1, 14, 112}}}));
}

TEST_F(UnevenPartsOnTheBill, AreRefusedWhereTheRowsDoNotFit) {
  if (size() == 1) GTEST_SKIP() << "tested with the group of one";
  const auto group = factory_.make("grad", world());
  std::vector<int64_t> rows(static_cast<size_t>(size()), 2);
  Tensor whole = elements<float>({2 * size()});
  Tensor two = elements<float>({2}), three = elements<float>({3}), doubles = elements<double>({2});
  std::vector<int64_t> negative = rows;
  negative[0] = -1;
  negative[1] = 5;

  EXPECT_THROW((void)group->all_gather_v(three, whole, rows), tensor::InternalError);
  EXPECT_THROW((void)group->all_gather_v(doubles, whole, rows), tensor::InternalError);
  EXPECT_THROW((void)group->reduce_scatter_v(whole, two, {2}), tensor::InternalError);
  EXPECT_THROW((void)group->reduce_scatter_v(whole, two, negative), tensor::InternalError);
  EXPECT_TRUE(ledger_.step().empty());
}

}  // namespace
}  // namespace tests
