#include <chrono>
#include <cmath>
#include <thread>

#include "tests/parallel/ranks/rank_fixture.h"

namespace tests {
namespace {

using parallel::Collective;
using parallel::Communicator;
using parallel::Handle;
using parallel::Reduction;
using tensor::Dtype;
using tensor::Tensor;

/// Numbers whose sum depends on the order of addition: both signs, magnitudes over twelve decades.
double uneven(int rank, int64_t index) {
  uint64_t bits = (static_cast<uint64_t>(rank) << 32 | static_cast<uint64_t>(index)) * 0x9E3779B97F4A7C15U;
  bits = (bits ^ (bits >> 31)) * 0xBF58476D1CE4E5B9U;
  return std::ldexp(static_cast<double>(static_cast<int64_t>(bits)), static_cast<int>(bits % 40) - 63);
}

class CallsInFlight : public RankTest {
 protected:
  /// The sum over ranks from the left, in fp32.
  float sum_in_rank_order(int64_t index) const {
    auto sum = static_cast<float>(uneven(0, index));
    for (int r = 1; r < size(); ++r) sum += static_cast<float>(uneven(r, index));
    return sum;
  }
  void arrive_at_different_times(int repeat) const {
    std::this_thread::sleep_for(std::chrono::microseconds((rank() * 7 + repeat * 3) % 5 * 200));
  }
};

TEST_F(CallsInFlight, SumsAreBitwiseTheSameEveryTime) {
  for (const auto& group : communicators()) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      for (const int64_t per_rank : {3, 601}) {
        const int64_t count = per_rank * size();
        Tensor x = make<float>({count}, [this](int64_t i) { return uneven(rank(), i); });
        const Tensor whole = make<float>({count}, [this](int64_t i) { return uneven(rank(), i); });
        Tensor part = allocate({per_rank}, Dtype::fp32);
        arrive_at_different_times(repeat);

        Handle all = group->all_reduce(x, Reduction::sum);
        Handle own = group->reduce_scatter(whole, part);
        all.wait();
        own.wait();

        expect_elements<float>(x, [&](int64_t i) { return sum_in_rank_order(i); });
        expect_elements<float>(part, [&](int64_t i) { return sum_in_rank_order(rank() * per_rank + i); });
      }
    }
  }
}

TEST_F(CallsInFlight, MayBeWaitedOnInAnyOrder) {
  for (const auto& group : communicators()) {
    Tensor a = elements<float>({5003});
    Tensor b = elements<double>({1001});
    Tensor gathered = allocate({7 * size()}, Dtype::int32);
    const Tensor part = elements<int32_t>({7});

    Handle first = group->all_reduce(a, Reduction::sum);
    Handle second = group->all_reduce(b, Reduction::sum);
    Handle third = group->all_gather(part, gathered);
    if (rank() % 2 == 0) {
      first.wait();
      second.wait();
      third.wait();
    } else {
      third.wait();
      second.wait();
      first.wait();
    }

    expect_elements<float>(a, [this](int64_t i) { return sum_over_ranks(i); });
    expect_elements<double>(b, [this](int64_t i) { return sum_over_ranks(i); });
    expect_elements<int32_t>(gathered, [](int64_t i) { return element(static_cast<int>(i / 7), i % 7); });
  }
}

TEST_F(CallsInFlight, MoveOnInsideABarrier) {
  for (const auto& group : communicators()) {
    Tensor x = elements<float>({5003});

    Handle sum = group->all_reduce(x, Reduction::sum);
    if (rank() % 2 == 1) group->barrier();  // the others need this rank's second round before they come here
    sum.wait();
    if (rank() % 2 == 0) group->barrier();

    expect_elements<float>(x, [this](int64_t i) { return sum_over_ranks(i); });
  }
}

TEST_F(CallsInFlight, AreFinishedByTheDestructor) {
  for (const auto& group : communicators()) {
    Tensor x = elements<float>({5003});

    { const Handle handle = group->all_reduce(x, Reduction::sum); }

    expect_elements<float>(x, [this](int64_t i) { return sum_over_ranks(i); });
  }
}

TEST_F(CallsInFlight, OfTwoGroupsThatCrossDoNotMix) {
  if (size() != 4) GTEST_SKIP() << "rows and columns of 2 x 2 ranks";
  const int row = rank() / 2;
  const int column = rank() % 2;
  const auto rows = factory_.make("tp", {2 * row, 2 * row + 1});
  const auto columns = factory_.make("dp", {column, column + 2});
  Tensor across = elements<float>({5003});
  Tensor down = elements<float>({5003});

  Handle first = rank() == 0 ? Handle() : rows->all_reduce(across, Reduction::sum);
  Handle second = columns->all_reduce(down, Reduction::sum);
  if (rank() == 0) first = rows->all_reduce(across, Reduction::sum);
  second.wait();
  first.wait();

  expect_elements<float>(across, [&](int64_t i) { return element(2 * row, i) + element(2 * row + 1, i); });
  expect_elements<float>(down, [&](int64_t i) { return element(column, i) + element(column + 2, i); });
}

TEST_F(CallsInFlight, RefuseOperandsThatDoNotMatch) {
  if (size() == 1) GTEST_SKIP() << "tested with the group of one";
  const auto group = factory_.make("world", world());
  Tensor three = elements<float>({3});
  Tensor matrix = elements<float>({3, 4});
  Tensor columns = matrix.columns(0, 2);
  const Tensor whole = elements<float>({2 * size()});
  Tensor elsewhere = whole.rows(2 * size() - 3, 2 * size() - 1);

  EXPECT_THROW((void)group->all_gather(three, three), tensor::InternalError);
  EXPECT_THROW((void)group->reduce_scatter(three, three), tensor::InternalError);
  EXPECT_THROW((void)group->all_reduce(columns, Reduction::sum), tensor::InternalError);
  EXPECT_THROW((void)group->reduce_scatter(whole, elsewhere), tensor::InternalError);
  EXPECT_THROW((void)group->all_to_all_v(three, {3}, three, {3}), tensor::InternalError);
  EXPECT_THROW((void)group->broadcast(three, size()), tensor::InternalError);
}

}  // namespace
}  // namespace tests
