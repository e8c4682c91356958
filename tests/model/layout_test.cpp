/// What a model's shape says about tensor parallelism.

#include "model/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tests {

using model::ModelConfig;
using parallel::TokenSharding;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

ModelConfig shape() {
  ModelConfig config;
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.hidden_size = 4096;
  config.ffn_hidden_size = 14336;
  config.seq_len = 8192;
  return config;
}

std::vector<std::string> problems(const ModelConfig& config, int tp, TokenSharding tokens = TokenSharding::whole) {
  std::vector<std::string> texts;
  for (const parallel::LayoutProblem& problem : layout_problems(config, {.tp = tp}, tokens)) {
    texts.push_back(problem.key + ": " + problem.text);
  }
  return texts;
}

}  // namespace

TEST(LayoutProblems, AreNoneWhereRanksShareHeadsOrCopyKvHeads) {
  for (const int tp : {1, 2, 4, 8, 16, 32}) {
    EXPECT_THAT(problems(shape(), tp, TokenSharding::sharded), ElementsAre()) << tp;
  }
}

TEST(LayoutProblems, NameEverySizeThatDoesNotFitAndWhatWould) {
  EXPECT_THAT(problems(shape(), 3),
              ElementsAre("parallel.tp: parallel.tp = 3 does not divide model.num_heads = 32.\n"
                          "  Every tensor-parallel rank owns the same number of heads.\n"
                          "  Fix: set parallel.tp = 1, 2, 4, 8, 16 or 32, or model.num_heads = 30 or 33.",
                          HasSubstr("parallel.tp = 3 does not fit model.num_kv_heads = 8."),
                          HasSubstr("parallel.tp = 3 does not divide model.ffn_hidden_size = 14336.")));
}

TEST(LayoutProblems, AllowOnlyWhatEveryRuleAllows) {
  ModelConfig config = shape();
  config.num_heads = 12;
  config.num_kv_heads = 6;
  config.ffn_hidden_size = 30;

  EXPECT_THAT(problems(config, 4), ElementsAre(HasSubstr("Fix: set parallel.tp = 1, 2, 3 or 6, or model.num_kv_heads"),
                                               HasSubstr("or model.ffn_hidden_size = 28 or 32.")));
  EXPECT_THAT(problems(config, 6), ElementsAre());
}

TEST(LayoutProblems, SeeTokensOnlyWhereTheyAreSharded) {
  ModelConfig config = shape();
  config.seq_len = 13;

  EXPECT_THAT(problems(config, 4, TokenSharding::whole), ElementsAre());
  EXPECT_THAT(problems(config, 4, TokenSharding::sharded),
              ElementsAre("parallel.tp_sequence: parallel.tp = 4 does not divide model.seq_len = 13.\n"
                          "  With parallel.tp_sequence every tensor-parallel rank holds the same number of tokens "
                          "between matrix products.\n"
                          "  Fix: set parallel.tp = 1, or model.seq_len = 12 or 16, or turn parallel.tp_sequence "
                          "off."));
}

TEST(LayoutProblems, SeeExpertsAndTheirHiddenUnits) {
  ModelConfig config = shape();
  config.moe.num_experts = 6;
  config.moe.ffn_hidden_size = 9;

  const auto found = model::layout_problems(config, {.dp_in = 8, .ep = 4, .expert_tp = 2}, TokenSharding::whole);

  ASSERT_EQ(found.size(), 2U);
  EXPECT_THAT(found[0].text, testing::HasSubstr("parallel.ep = 4 does not divide model.moe.num_experts = 6"));
  EXPECT_THAT(found[0].text, testing::HasSubstr("set parallel.ep = 3 or 6, or model.moe.num_experts = 4 or 8"));
  EXPECT_THAT(found[1].text, testing::HasSubstr("parallel.expert_tp = 2 does not divide model.moe.ffn_hidden_size"));
}

TEST(LayoutProblems, DoNotSeeTheVocabulary) {
  ModelConfig config = shape();
  config.vocab_size = 3;

  EXPECT_THAT(problems(config, 4), ElementsAre());
}

}  // namespace tests
