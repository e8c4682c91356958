/// What a model's shape says about tensor parallelism.

#include "model/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tests {

using model::ModelConfig;
using parallel::SpMethod;
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

std::vector<std::string> texts_of(const std::vector<parallel::LayoutProblem>& problems) {
  std::vector<std::string> texts;
  for (const parallel::LayoutProblem& problem : problems) texts.push_back(problem.key + ": " + problem.text);
  return texts;
}

std::vector<std::string> problems(const ModelConfig& config, int tp, TokenSharding tokens = TokenSharding::whole) {
  return texts_of(layout_problems(config, {.tp = tp}, tokens));
}

std::vector<std::string> sequence_problems(const ModelConfig& config, const parallel::Degrees& degrees,
                                           SpMethod method = SpMethod::ring) {
  return texts_of(layout_problems(config, degrees, TokenSharding::sharded, method));
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

TEST(LayoutProblems, AreNoneWhereSequencesFallIntoHalfChunks) {
  EXPECT_THAT(sequence_problems(shape(), {.tp = 8, .sp = 64}), ElementsAre());
  EXPECT_THAT(sequence_problems(shape(), {.tp = 8, .sp = 4}, SpMethod::ulysses), ElementsAre());
}

TEST(LayoutProblems, NameSequencesThatDoNotFallIntoHalfChunks) {
  ModelConfig config = shape();
  config.seq_len = 12;

  EXPECT_THAT(sequence_problems(config, {.sp = 4}),
              ElementsAre("parallel.sp: parallel.sp = 4 does not cut model.seq_len = 12 into 2 * 4 equal parts.\n"
                          "  Every sequence-parallel rank holds an early and a late part of each sequence: that gives "
                          "all the same work.\n"
                          "  Fix: set parallel.sp = 1, 2, 3 or 6, or model.seq_len = 8 or 16."));
}

TEST(LayoutProblems, ShareOutTheTokensThatSequenceParallelRanksHold) {
  ModelConfig config = shape();
  config.seq_len = 12;

  EXPECT_THAT(sequence_problems(config, {.tp = 4, .sp = 2}),
              ElementsAre(HasSubstr("parallel.tp = 4 does not divide model.seq_len / parallel.sp = 6.")));
  EXPECT_THAT(sequence_problems(config, {.tp = 2, .sp = 3}), ElementsAre());
}

TEST(LayoutProblems, NameHeadsThatUlyssesDoesNotHave) {
  EXPECT_THAT(sequence_problems(shape(), {.tp = 8, .sp = 8}, SpMethod::all_gather), ElementsAre());
  EXPECT_THAT(sequence_problems(shape(), {.tp = 8, .sp = 8}, SpMethod::ulysses),
              ElementsAre("parallel.sp_method: parallel.sp * parallel.tp = 8 * 8 = 64 is more than model.num_heads = "
                          "32.\n"
                          "  With parallel.sp_method = \"ulysses\" every rank attends with heads of its own.\n"
                          "  Fix: set parallel.sp = 4 or less, or parallel.sp_method = \"ring\" or "
                          "\"all_gather\"."));
}

TEST(LayoutProblems, DoNotSeeTheVocabulary) {
  ModelConfig config = shape();
  config.vocab_size = 3;

  EXPECT_THAT(problems(config, 4), ElementsAre());
}

}  // namespace tests
