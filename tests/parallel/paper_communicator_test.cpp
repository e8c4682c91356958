#include "parallel/paper_communicator.h"

#include <gtest/gtest.h>

#include "tensor/ops.h"

namespace parallel {
namespace {

using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Tensor;

class PaperCommunicator : public ::testing::Test {
 protected:
  Tensor make(tensor::Shape shape, Dtype dtype = Dtype::bf16) {
    return backend_.device->allocate(shape, dtype, MemoryCategory::other);
  }

  tensor::Backend backend_ = tensor::make_paper_backend();
  Ledger ledger_;
};

TEST_F(PaperCommunicator, SitsInItsGroupsOfAMeshOfAnySize) {
  constexpr int kWorld = 16'384, kRank = 9'999;
  const Mesh mesh({.tp = 8, .dp_in = 128, .pp = 16});
  PaperCommunicatorFactory factory(kRank, kWorld, ledger_);
  const MeshCommunicators communicators(mesh, kRank, factory);

  for (int i = 0; i < kNumGroups; ++i) {
    const auto group = static_cast<Group>(i);
    const std::vector<int> ranks = mesh.group(group, kRank);
    EXPECT_EQ(communicators.at(group).axis(), to_string(group));
    EXPECT_EQ(communicators.at(group).size(), static_cast<int>(ranks.size()));
    EXPECT_EQ(ranks[static_cast<size_t>(communicators.at(group).rank())], kRank);
  }
}

TEST_F(PaperCommunicator, RecordsPetabytesAndMovesNone) {
  PaperCommunicatorFactory factory(1, 3, ledger_);
  const auto group = factory.make("grad", {0, 1, 2});
  const int64_t rows = int64_t{1} << 40;
  Tensor whole = make({3 * rows, 100});
  Tensor part = whole.rows(rows, 2 * rows);

  group->reduce_scatter(whole, part).wait();
  group->all_gather_v(part, whole, {2 * rows, rows, 0}).wait();
  group->barrier();

  const int64_t count = 300 * rows;
  EXPECT_EQ(ledger_.step(), (Bill{{{"grad", Collective::reduce_scatter, Dtype::bf16}, {1, count, 2 * count}},
                                  {{"grad", Collective::all_gather, Dtype::bf16}, {1, count, 2 * count}}}));
}

TEST_F(PaperCommunicator, OfOneRecordsNothing) {
  PaperCommunicatorFactory factory(2, 4, ledger_);
  const auto group = factory.make("tp", {2});
  Tensor x = make({5}), y = make({5});

  group->all_reduce(x, Reduction::sum).wait();
  group->all_gather(x, y).wait();

  EXPECT_EQ(group->size(), 1);
  EXPECT_TRUE(ledger_.step().empty());
}

TEST_F(PaperCommunicator, RefusesWhatARealOneRefuses) {
  PaperCommunicatorFactory factory(0, 2, ledger_);
  const auto group = factory.make("tp", {0, 1});
  Tensor three = make({3}), matrix = make({6, 4}), columns = matrix.columns(0, 2), other = make({3}, Dtype::fp32);

  EXPECT_THROW((void)group->all_gather(three, three), tensor::InternalError);
  EXPECT_THROW((void)group->reduce_scatter_v(matrix, matrix, {5, 1}), tensor::InternalError);
  EXPECT_THROW((void)group->all_gather_v(three, matrix, {3, 3}), tensor::InternalError);
  EXPECT_THROW((void)group->all_gather_v(three, three, {3}), tensor::InternalError);
  EXPECT_THROW((void)group->all_gather_v(other, three, {3, 0}), tensor::InternalError);
  EXPECT_THROW((void)group->all_reduce(columns, Reduction::sum), tensor::InternalError);
  EXPECT_THROW((void)group->all_to_all_v(three, {3}, three, {3}), tensor::InternalError);
  EXPECT_THROW((void)group->broadcast(three, 2), tensor::InternalError);
  EXPECT_THROW((void)factory.make("dp", {0, 2}), tensor::InternalError);
  EXPECT_THROW((void)factory.make("dp", {1}), tensor::InternalError);
  EXPECT_TRUE(ledger_.step().empty());
}

}  // namespace
}  // namespace parallel
