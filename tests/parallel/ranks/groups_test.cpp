#include "tests/parallel/ranks/rank_fixture.h"

namespace tests {
namespace {

using parallel::Bill;
using parallel::Collective;
using parallel::Group;
using parallel::Mesh;
using parallel::MeshCommunicators;
using parallel::Reduction;
using tensor::Dtype;
using tensor::Tensor;

class Groups : public RankTest {
 protected:
  /// Which of the world's ranks are in the group, as this rank finds out by talking to them.
  std::vector<int> members(parallel::Communicator& group) {
    const Tensor self = make<int32_t>({1}, [this](int64_t) { return rank(); });
    Tensor all = allocate({group.size()}, Dtype::int32);
    group.all_gather(self, all).wait();
    return {all.data<int32_t>(), all.data<int32_t>() + group.size()};
  }
};

TEST_F(Groups, OfTheMeshTalkToTheirMembers) {
  const Mesh mesh = size() == 4 ? Mesh({.tp = 2, .dp_in = 2, .ep = 2}) : Mesh({.pp = size()});
  const MeshCommunicators communicators(mesh, rank(), factory_);

  for (int i = 0; i < parallel::kNumGroups; ++i) {
    const auto kind = static_cast<Group>(i);
    parallel::Communicator& group = communicators.at(kind);
    EXPECT_EQ(group.axis(), to_string(kind));
    EXPECT_EQ(members(group), mesh.group(kind, rank())) << to_string(kind);
    EXPECT_EQ(mesh.group(kind, rank())[static_cast<size_t>(group.rank())], rank()) << to_string(kind);
  }
}

TEST_F(Groups, KeepTheOrderOfTheirRanks) {
  std::vector<int> reversed = world();
  std::reverse(reversed.begin(), reversed.end());
  const auto group = factory_.make("reversed", reversed);

  EXPECT_EQ(group->rank(), size() - 1 - rank());
  EXPECT_EQ(members(*group), reversed);
}

TEST_F(Groups, LiveInPartOfTheWorld) {
  // Two worlds side by side: the even ranks, and the odd ones.
  std::vector<int> mine;
  for (int r = rank() % 2; r < size(); r += 2) mine.push_back(r);
  parallel::MpiCommunicatorFactory part(mpi_environment(), ledger_, {.world_ranks = mine});

  EXPECT_EQ(part.world_size(), static_cast<int>(mine.size()));
  EXPECT_EQ(mine[static_cast<size_t>(part.world_rank())], rank());
  const Mesh mesh({.dp_in = part.world_size()});
  const MeshCommunicators communicators(mesh, part.world_rank(), part);
  EXPECT_EQ(members(communicators.at(Group::grad)), mine);
}

TEST_F(Groups, SharingOneChannelKeepTheirCallsApart) {
  const auto tp = factory_.make("tp", world());
  const auto dp = factory_.make("dp", world());
  Tensor a = elements<float>({5003});
  Tensor b = elements<float>({5003});

  parallel::Handle first = tp->all_reduce(a, Reduction::sum);
  parallel::Handle second = dp->all_reduce(b, Reduction::max);
  second.wait();
  first.wait();

  expect_elements<float>(a, [this](int64_t i) { return sum_over_ranks(i); });
}

TEST_F(Groups, RecordEveryCallInLogicalBytes) {
  const auto group = factory_.make("tp", world());
  Tensor x = elements<tensor::bfloat16>({10});
  const Tensor part = elements<float>({3, 2});
  Tensor whole = allocate({3 * size(), 2}, Dtype::fp32);
  Tensor scattered = allocate({3, 2}, Dtype::fp32);
  std::vector<int64_t> rows(static_cast<size_t>(size()), 3);

  group->all_reduce(x, Reduction::sum).wait();
  group->all_reduce(x, Reduction::max).wait();
  group->all_gather(part, whole).wait();
  group->reduce_scatter(whole, scattered).wait();
  group->all_to_all_v(whole, rows, whole, rows).wait();
  group->broadcast(x, 0).wait();
  group->barrier();

  if (size() == 1) {
    EXPECT_TRUE(ledger_.step().empty());
    return;
  }
  const int64_t whole_count = 6 * size();
  EXPECT_EQ(ledger_.step(), (Bill{{{"tp", Collective::all_reduce, Dtype::bf16}, {2, 20, 40}},
                                  {{"tp", Collective::all_gather, Dtype::fp32}, {1, whole_count, 4 * whole_count}},
                                  {{"tp", Collective::reduce_scatter, Dtype::fp32}, {1, whole_count, 4 * whole_count}},
                                  {{"tp", Collective::all_to_all_v, Dtype::fp32}, {1, whole_count, 4 * whole_count}},
                                  {{"tp", Collective::broadcast, Dtype::bf16}, {1, 10, 20}}}));
}

TEST_F(Groups, RecordMessagesOnBothSides) {
  if (size() == 1) GTEST_SKIP() << "a group of one sends no messages";
  const auto group = factory_.make("pp", world());
  Tensor x = elements<double>({5});

  if (rank() == 0) group->send(x, 1).wait();
  if (rank() == 1) group->receive(x, 0).wait();

  Bill expected;
  if (rank() == 0) expected = {{{"pp", Collective::send, Dtype::fp64}, {1, 5, 40}}};
  if (rank() == 1) expected = {{{"pp", Collective::receive, Dtype::fp64}, {1, 5, 40}}};
  EXPECT_EQ(ledger_.step(), expected);
}

TEST(MpiEnvironment, KnowsTheNode) {
  // All ranks of a test run on one machine.
  EXPECT_EQ(mpi_environment().local_size(), mpi_environment().world_size());
  EXPECT_EQ(mpi_environment().local_rank(), mpi_environment().world_rank());
  EXPECT_FALSE(mpi_environment().host().empty());
}

}  // namespace
}  // namespace tests
