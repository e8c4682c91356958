#include <algorithm>

#include "tests/parallel/ranks/rank_fixture.h"

namespace tests {
namespace {

using parallel::Communicator;
using parallel::Reduction;
using tensor::Tensor;

/// Not multiples of the group, fewer than the group, none, and more than one message of the cutting setting.
constexpr int64_t kCounts[] = {0, 1, 2, 3, 5, 64, 5003};

template <class T>
class Collectives : public RankTest {};
using Dtypes = ::testing::Types<float, double, tensor::bfloat16, int32_t, int64_t>;
TYPED_TEST_SUITE(Collectives, Dtypes);

TYPED_TEST(Collectives, AllReduceSums) {
  for (const auto& group : this->communicators()) {
    for (const int64_t count : kCounts) {
      Tensor x = this->template elements<TypeParam>({count});

      group->all_reduce(x, Reduction::sum).wait();

      this->template expect_elements<TypeParam>(x, [&](int64_t i) { return this->sum_over_ranks(i); });
    }
  }
}

TYPED_TEST(Collectives, AllReduceTakesTheMaximum) {
  for (const auto& group : this->communicators()) {
    for (const int64_t count : kCounts) {
      Tensor x = this->template elements<TypeParam>({count});

      group->all_reduce(x, Reduction::max).wait();

      this->template expect_elements<TypeParam>(x, [&](int64_t i) {
        double largest = element(0, i);
        for (int r = 1; r < this->size(); ++r) largest = std::max(largest, element(r, i));
        return largest;
      });
    }
  }
}

TYPED_TEST(Collectives, AllGatherLinesUpThePartsInRankOrder) {
  for (const auto& group : this->communicators()) {
    for (const int64_t rows : kCounts) {
      const Tensor part = this->template elements<TypeParam>({rows, 3});
      Tensor whole = this->template make<TypeParam>({rows * this->size(), 3}, [](int64_t) { return 99; });

      group->all_gather(part, whole).wait();

      this->template expect_elements<TypeParam>(
          whole, [&](int64_t i) { return element(static_cast<int>(i / part.numel()), i % part.numel()); });
    }
  }
}

TYPED_TEST(Collectives, AllGatherWorksInPlace) {
  for (const auto& group : this->communicators()) {
    for (const int64_t rows : kCounts) {
      // Element i of the whole; every rank starts with its own rows only.
      Tensor whole = this->template make<TypeParam>(
          {rows * this->size()}, [&](int64_t i) { return i / rows == this->rank() ? element(0, i) : 99; });
      const Tensor part = whole.rows(this->rank() * rows, (this->rank() + 1) * rows);

      group->all_gather(part, whole).wait();

      this->template expect_elements<TypeParam>(whole, [](int64_t i) { return element(0, i); });
    }
  }
}

TYPED_TEST(Collectives, ReduceScatterGivesEachRankItsRowsOfTheSum) {
  for (const auto& group : this->communicators()) {
    for (const int64_t rows : kCounts) {
      const Tensor whole = this->template elements<TypeParam>({rows * this->size(), 3});
      Tensor part = this->template make<TypeParam>({rows, 3}, [](int64_t) { return 99; });

      group->reduce_scatter(whole, part).wait();

      const int64_t begin = this->rank() * rows * 3;
      this->template expect_elements<TypeParam>(part, [&](int64_t i) { return this->sum_over_ranks(begin + i); });
      this->template expect_elements<TypeParam>(
          whole, [&](int64_t i) { return element(this->rank(), i); }, "input");
    }
  }
}

TYPED_TEST(Collectives, ReduceScatterWorksInPlace) {
  for (const auto& group : this->communicators()) {
    for (const int64_t rows : kCounts) {
      const Tensor whole = this->template elements<TypeParam>({rows * this->size()});
      const int64_t begin = this->rank() * rows;
      Tensor part = whole.rows(begin, begin + rows);

      group->reduce_scatter(whole, part).wait();

      this->template expect_elements<TypeParam>(part, [&](int64_t i) { return this->sum_over_ranks(begin + i); });
    }
  }
}

/// Rows that rank `from` sends to rank `to`: some none, and the last rank gets nothing from anybody.
int64_t rows_between(int from, int to, int size) { return to == size - 1 ? 0 : (from * 3 + to * 2) % 4; }

TYPED_TEST(Collectives, AllToAllDeliversUnequalRows) {
  for (const auto& group : this->communicators()) {
    std::vector<int64_t> send_rows;
    std::vector<int64_t> receive_rows;
    std::vector<double> expected;
    for (int peer = 0; peer < this->size(); ++peer) {
      send_rows.push_back(rows_between(this->rank(), peer, this->size()));
      receive_rows.push_back(rows_between(peer, this->rank(), this->size()));
      int64_t begin = 0;  // of my rows in the peer's buffer
      for (int r = 0; r < this->rank(); ++r) begin += rows_between(peer, r, this->size());
      for (int64_t i = 0; i < receive_rows.back() * 37; ++i) expected.push_back(element(peer, begin * 37 + i));
    }
    const auto total = [](const std::vector<int64_t>& rows) {
      int64_t sum = 0;
      for (const int64_t n : rows) sum += n;
      return sum;
    };
    const Tensor send = this->template elements<TypeParam>({total(send_rows), 37});
    Tensor receive = this->template make<TypeParam>({total(receive_rows), 37}, [](int64_t) { return 99; });

    group->all_to_all_v(send, send_rows, receive, receive_rows).wait();

    this->template expect_elements<TypeParam>(receive, [&](int64_t i) { return expected[static_cast<size_t>(i)]; });
  }
}

TYPED_TEST(Collectives, BroadcastCopiesTheRoot) {
  for (const auto& group : this->communicators()) {
    for (int root = 0; root < this->size(); ++root) {
      for (const int64_t count : kCounts) {
        Tensor x = this->template elements<TypeParam>({count});

        group->broadcast(x, root).wait();

        this->template expect_elements<TypeParam>(x, [&](int64_t i) { return element(root, i); });
      }
    }
  }
}

TYPED_TEST(Collectives, MessagesGoBothWaysAtOnce) {
  if (this->size() == 1) GTEST_SKIP() << "a group of one sends no messages";
  const int right = (this->rank() + 1) % this->size();
  const int left = (this->rank() + this->size() - 1) % this->size();
  for (const auto& group : this->communicators()) {
    for (const int64_t count : {0, 1, 50'003}) {
      const Tensor x = this->template elements<TypeParam>({count});
      Tensor from_left = this->allocate({count}, x.dtype());
      Tensor from_right = this->allocate({count}, x.dtype());

      parallel::Handle to_right = group->send(x, right);
      parallel::Handle to_left = group->send(x, left);
      // With two ranks both come from the same peer, in the order of issue.
      parallel::Handle left_handle = group->receive(from_left, left);
      parallel::Handle right_handle = group->receive(from_right, right);
      right_handle.wait();
      left_handle.wait();
      to_right.wait();
      to_left.wait();

      this->template expect_elements<TypeParam>(from_left, [&](int64_t i) { return element(left, i); });
      this->template expect_elements<TypeParam>(from_right, [&](int64_t i) { return element(right, i); });
    }
  }
}

}  // namespace
}  // namespace tests
