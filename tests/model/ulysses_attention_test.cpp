/// How Ulysses shares heads out.

#include "model/ulysses_attention.h"

#include <gtest/gtest.h>

namespace tests {

using model::AttentionHeads;
using model::head_share;
using model::HeadShare;

TEST(HeadShare, IsWholeKvHeadsWhereThereAreEnough) {
  const AttentionHeads heads = {.q = 14, .kv = 7, .head_dim = 6};

  EXPECT_EQ(head_share(heads, 0, 2), (HeadShare{.first_q = 0, .num_q = 6, .first_kv = 0, .num_kv = 3}));
  EXPECT_EQ(head_share(heads, 1, 2), (HeadShare{.first_q = 6, .num_q = 8, .first_kv = 3, .num_kv = 4}));
}

TEST(HeadShare, IsAPartOfTheHeadsOfACopiedKvHeadWhereThereAreFewer) {
  const AttentionHeads heads = {.q = 10, .kv = 2, .head_dim = 6};

  EXPECT_EQ(head_share(heads, 0, 3), (HeadShare{.first_q = 0, .num_q = 2, .first_kv = 0, .num_kv = 1}));
  EXPECT_EQ(head_share(heads, 1, 3), (HeadShare{.first_q = 2, .num_q = 3, .first_kv = 0, .num_kv = 1}));
  EXPECT_EQ(head_share(heads, 2, 3), (HeadShare{.first_q = 5, .num_q = 5, .first_kv = 1, .num_kv = 1}));
}

TEST(HeadShare, GivesEveryHeadToOneRankWithItsKvHead) {
  for (int64_t kv = 1; kv <= 8; ++kv) {
    for (int64_t group = 1; group <= 5; ++group) {
      const AttentionHeads heads = {.q = kv * group, .kv = kv, .head_dim = 1};
      for (int size = 1; size <= heads.q; ++size) {
        int64_t next = 0;
        for (int rank = 0; rank < size; ++rank) {
          const HeadShare share = head_share(heads, rank, size);
          EXPECT_EQ(share.first_q, next);
          EXPECT_GE(share.num_q, 1);
          EXPECT_EQ(share.num_q % share.num_kv, 0);
          for (int64_t head = 0; head < share.num_q; ++head) {
            EXPECT_EQ((share.first_q + head) / group, share.first_kv + head / (share.num_q / share.num_kv));
          }
          next += share.num_q;
        }
        EXPECT_EQ(next, heads.q);
      }
    }
  }
}

}  // namespace tests
