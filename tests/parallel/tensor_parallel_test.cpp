/// Tensor parallelism without ranks: which ranks hold the same kv heads, and a group of one.

#include "parallel/tensor_parallel.h"

#include "tests/support/tensors.h"

namespace tests {

using parallel::kv_replica_ranks;
using parallel::Mesh;
using parallel::TokenSharding;
using tensor::Dtype;
using Ranks = std::vector<int>;

TEST(KvReplicaRanks, AreAloneWhereRanksShareKvHeadsOut) {
  const Mesh mesh({.tp = 4, .dp_in = 2});

  EXPECT_EQ(kv_replica_ranks(mesh, 5, 4), Ranks{5});
  EXPECT_EQ(kv_replica_ranks(mesh, 5, 8), Ranks{5});
}

TEST(KvReplicaRanks, AreNeighboursWhereThereAreFewerKvHeads) {
  const Mesh mesh({.tp = 4, .dp_in = 2});

  EXPECT_EQ(kv_replica_ranks(mesh, 1, 2), (Ranks{0, 1}));
  EXPECT_EQ(kv_replica_ranks(mesh, 4, 2), (Ranks{4, 5}));
  EXPECT_EQ(kv_replica_ranks(mesh, 7, 2), (Ranks{6, 7}));
  EXPECT_EQ(kv_replica_ranks(mesh, 6, 1), (Ranks{4, 5, 6, 7}));
}

TEST(KvReplicaRanks, RefuseNumbersOfWhichNeitherDividesTheOther) {
  EXPECT_THROW(kv_replica_ranks(Mesh({.tp = 4}), 0, 3), tensor::InternalError);
  EXPECT_THROW(kv_replica_ranks(Mesh({.tp = 4}), 0, 6), tensor::InternalError);
}

class TokensOfOneRank : public CpuTest, public testing::WithParamInterface<TokenSharding> {
 protected:
  std::unique_ptr<parallel::Communicator> self_ = parallel::make_self_communicator("tp");
  tensor::Tensor x_ = random_tensor(device_, {5, 3}, Dtype::fp32, 1);
};

TEST_P(TokensOfOneRank, AreAllTokensAndTheirOwnSum) {
  const Values expected = values_of(x_);

  EXPECT_EQ(values_of(gather_tokens(*self_, x_, GetParam())), expected);
  EXPECT_EQ(values_of(held_tokens(*self_, x_, GetParam())), expected);
  tensor::Tensor same = gather_tokens(*self_, std::move(x_), GetParam());
  EXPECT_EQ(values_of(sum_parts(*self_, std::move(same), GetParam())), expected);
}

INSTANTIATE_TEST_SUITE_P(Sharding, TokensOfOneRank, testing::Values(TokenSharding::whole, TokenSharding::sharded));

}  // namespace tests
