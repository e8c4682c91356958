#include "parallel/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tensor/error.h"

namespace parallel {
namespace {

using Groups = std::vector<std::vector<int>>;
using enum Axis;

/// [0,1][2,3].. : neighbours in pairs, `distance` apart, for 16 ranks.
Groups pairs(int distance) {
  Groups all;
  for (int rank = 0; rank < 16; ++rank) {
    if (rank / distance % 2 == 0) all.push_back({rank, rank + distance});
  }
  return all;
}

Groups consecutive(int size) {
  Groups all;
  for (int first = 0; first < 16; first += size) {
    all.emplace_back(static_cast<size_t>(size));
    std::iota(all.back().begin(), all.back().end(), first);
  }
  return all;
}

const Groups kTwoByFour = {{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}};
const Groups kTwoByTwoAcross = {{0, 2, 8, 10}, {1, 3, 9, 11}, {4, 6, 12, 14}, {5, 7, 13, 15}};

TEST(Mesh, GroupsAsInMegatronsDocumentedExample) {
  const Mesh mesh({.tp = 2, .dp_in = 2, .pp = 4});

  EXPECT_EQ(mesh.groups(Group::tp), pairs(1));
  EXPECT_EQ(mesh.groups(Group::dp), pairs(2));
  EXPECT_EQ(mesh.groups(Group::pp), (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(mesh.group(Group::tied, 4), (std::vector<int>{4}));
  EXPECT_EQ(mesh.group(Group::tied, 13), (std::vector<int>{1, 13}));
}

TEST(Mesh, GroupsWithSequenceParallelismAsMegatronDoes) {
  const Mesh mesh({.tp = 2, .sp = 2, .dp_in = 2, .pp = 2});

  EXPECT_EQ(mesh.groups(Group::tp), pairs(1));
  EXPECT_EQ(mesh.groups(Group::sp), pairs(2));
  EXPECT_EQ(mesh.groups(Group::dp), pairs(4));
  EXPECT_EQ(mesh.groups(Group::pp), pairs(8));
  EXPECT_EQ(mesh.groups(Group::grad), kTwoByFour);
  EXPECT_EQ(mesh.groups(Group::zero), kTwoByFour);
  EXPECT_EQ(mesh.groups(Group::tp_sp), consecutive(4));
  EXPECT_EQ(mesh.groups({tp, pp}), (Groups{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}}));
  EXPECT_EQ(mesh.groups(Group::tied), pairs(8));
  EXPECT_EQ(mesh.groups(Group::world), consecutive(16));
}

TEST(Mesh, FoldsExpertsIntoTheDenseBlock) {
  const auto with_experts = [](int ep, int expert_tp) {
    return Mesh({.tp = 2, .sp = 2, .dp_in = 2, .pp = 2, .ep = ep, .expert_tp = expert_tp});
  };
  const Mesh ep4 = with_experts(4, 1);
  const Mesh ep2_tp2 = with_experts(2, 2);
  const Mesh ep8 = with_experts(8, 1);

  EXPECT_EQ(ep4.groups(Group::ep), consecutive(4));
  EXPECT_EQ(ep4.groups(Group::egrad), pairs(4));
  EXPECT_EQ(ep4.groups(Group::pp), pairs(8));
  EXPECT_EQ(ep2_tp2.groups(Group::expert_tp), pairs(1));
  EXPECT_EQ(ep2_tp2.groups(Group::ep), pairs(2));
  EXPECT_EQ(ep2_tp2.groups(Group::egrad), pairs(4));
  EXPECT_EQ(ep8.groups(Group::ep), consecutive(8));
  EXPECT_EQ(ep8.groups(Group::egrad), consecutive(1));
}

TEST(Mesh, PutsOuterDataParallelismOutsideThePipelineAsLlama3Does) {
  const Mesh mesh({.tp = 2, .sp = 2, .pp = 2, .dp_out = 2});

  EXPECT_EQ(mesh.groups(Group::pp), pairs(4));
  EXPECT_EQ(mesh.groups(Group::dp), pairs(8));
  EXPECT_EQ(mesh.groups(Group::grad), kTwoByTwoAcross);
}

TEST(Mesh, SplitsDataParallelismInsideAndAcrossPods) {
  const Mesh mesh({.tp = 2, .dp_in = 2, .pp = 2, .dp_out = 2});
  const Mesh with_experts({.tp = 2, .dp_in = 2, .pp = 2, .dp_out = 2, .ep = 4});

  EXPECT_EQ(mesh.groups(Group::dp_in), pairs(2));
  EXPECT_EQ(mesh.groups(Group::pp), pairs(4));
  EXPECT_EQ(mesh.groups(Group::dp_out), pairs(8));
  EXPECT_EQ(mesh.groups(Group::grad), kTwoByTwoAcross);
  EXPECT_EQ(mesh.groups(Group::zero), pairs(2));
  EXPECT_EQ(with_experts.groups(Group::ep), consecutive(4));
  EXPECT_EQ(with_experts.groups(Group::egrad), pairs(8));
}

TEST(Mesh, PartitionsTheWorldByEveryGroup) {
  const Mesh mesh({.tp = 3, .sp = 2, .dp_in = 4, .pp = 3, .dp_out = 2, .ep = 4, .expert_tp = 2});
  std::vector<int> world(static_cast<size_t>(mesh.world_size()));
  std::iota(world.begin(), world.end(), 0);

  for (int i = 0; i < kNumGroups; ++i) {
    const auto kind = static_cast<Group>(i);
    std::vector<int> members;
    for (const std::vector<int>& group : mesh.groups(kind)) {
      EXPECT_TRUE(std::is_sorted(group.begin(), group.end())) << to_string(kind);
      for (const int rank : group) EXPECT_EQ(mesh.group(kind, rank), group) << to_string(kind) << " of " << rank;
      members.insert(members.end(), group.begin(), group.end());
    }
    std::sort(members.begin(), members.end());
    EXPECT_EQ(members, world) << to_string(kind);
  }
}

TEST(Mesh, FindsTheRankAtItsCoordinates) {
  const Mesh mesh({.tp = 2, .sp = 3, .dp_in = 2, .pp = 3, .dp_out = 2, .ep = 2, .expert_tp = 3});

  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const Coordinates at = mesh.coordinates(rank);
    EXPECT_EQ(mesh.rank_at(at), rank);
    // The expert view is the same rank written in another base.
    const int block = at[expert_tp] + 3 * (at[ep] + 2 * at[expert_dp_in]);
    EXPECT_EQ(block + 12 * (at[pp] + 3 * at[dp_out]), rank);
  }
}

TEST(Mesh, RefusesGroupsOfBothViews) {
  const Mesh mesh({.tp = 2, .dp_in = 2, .ep = 2});

  EXPECT_THROW(mesh.groups({tp, ep}), tensor::InternalError);
}

TEST(Mesh, RefusesExpertsThatDoNotDivideTheBlock) {
  EXPECT_THROW(Mesh({.tp = 2, .ep = 4}), tensor::LayoutError);
  EXPECT_THROW(Mesh({.tp = 0}), tensor::LayoutError);
}

}  // namespace
}  // namespace parallel
