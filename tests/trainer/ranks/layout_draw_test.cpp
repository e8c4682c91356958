#include "tests/trainer/ranks/layout_draw.h"

#include <gmock/gmock.h>

#include <set>

#include "trainer/config_reader.h"

namespace tests {

using model::Position;
using trainer::Config;

/// Of the first 40 seeds, which the test suite runs: how many draws a claim is true of.
template <class Claim>
int64_t count_draws(const Claim& claim) {
  int64_t count = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) count += claim(draw_layout(seed, 8)) ? 1 : 0;
  return count;
}

TEST(LayoutDraw, IsAFunctionOfTheSeed) {
  const auto text = [](uint64_t seed) { return to_toml(draw_layout(seed, 8).config); };

  EXPECT_EQ(text(3), text(3));
  EXPECT_NE(text(3), text(4));
}

TEST(LayoutDraw, NeverTakesMoreRanksThanThereAre) {
  for (uint64_t seed = 1; seed <= 100; ++seed) EXPECT_LE(draw_layout(seed, 3).num_ranks, 3);
}

TEST(LayoutDraw, TakesEveryLayout) {
  std::set<int64_t> tp, sp, zero_stages;
  std::set<parallel::SpMethod> sp_methods;
  count_draws([&](const LayoutDraw& draw) {
    tp.insert(draw.config.parallel.tp);
    sp.insert(draw.config.parallel.sp);
    if (draw.config.parallel.sp > 1) sp_methods.insert(draw.config.parallel.sp_method);
    if (draw.num_ranks > draw.config.parallel.tp) zero_stages.insert(draw.config.parallel.zero_stage);
    return true;
  });

  EXPECT_THAT(tp, testing::IsSupersetOf({1, 2, 4, 8}));
  EXPECT_THAT(sp, testing::IsSupersetOf({1, 2, 4, 8}));
  EXPECT_EQ(sp_methods.size(), 3u);
  EXPECT_THAT(zero_stages, testing::ElementsAre(0, 1, 2, 3));
  EXPECT_GT(count_draws([](const auto& draw) { return draw.config.parallel.dp_out > 1; }), 2);
  EXPECT_GT(
      count_draws([](const auto& draw) { return draw.config.parallel.tp_sequence && draw.config.parallel.tp > 1; }), 2);
}

TEST(LayoutDraw, TakesModelsThatAreHardToShareOut) {
  const auto has_tp_above = [](auto size_of) {
    return count_draws([&](const LayoutDraw& draw) { return draw.config.parallel.tp > size_of(draw.config.model); });
  };

  EXPECT_GT(has_tp_above([](const auto& model) { return model.vocab_size; }), 0);
  EXPECT_GT(has_tp_above([](const auto& model) { return model.kv_heads(); }), 2);
  EXPECT_GT(count_draws([](const auto& draw) { return draw.config.model.hidden_size % 2 == 1; }), 5);
  EXPECT_GT(count_draws([](const auto& draw) { return draw.config.model.dropout > 0; }), 10);
  EXPECT_GT(count_draws([](const auto& draw) { return draw.config.model.tie_embeddings; }), 10);
  EXPECT_GT(count_draws([](const auto& draw) { return draw.config.model.position == Position::learned; }), 2);
}

TEST(LayoutDraw, TakesExpertsOnEveryLayout) {
  using model::Balance;
  const auto with_experts = [](const auto& claim) {
    return count_draws([&](const LayoutDraw& d) { return d.config.model.num_moe_layers() > 0 && claim(d.config); });
  };

  EXPECT_GT(with_experts([](const Config& c) { return c.parallel.ep > 1; }), 5);
  EXPECT_GT(with_experts([](const Config& c) { return c.parallel.expert_tp > 1; }), 2);
  EXPECT_GT(with_experts([](const Config& c) { return c.model.moe.capacity_factor > 0; }), 2);
  for (const Balance balance : {Balance::none, Balance::aux, Balance::bias}) {
    EXPECT_GT(with_experts([&](const Config& c) { return c.model.moe.balance == balance; }), 1);
  }
}

}  // namespace tests
