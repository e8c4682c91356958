#include "trainer/nearest.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("steps", "steps"), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("num_layer", "num_layers"), 1);
  EXPECT_EQ(edit_distance("stesp", "steps"), 1) << "a swap is one edit";
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Nearest, FindsTyposOnly) {
  const std::vector<std::string> known = {"hidden_size", "num_heads", "num_layers", "tp"};

  EXPECT_EQ(nearest("hiddensize", known), "hidden_size");
  EXPECT_EQ(nearest("n_layers", known), "num_layers");
  EXPECT_EQ(nearest("tpp", known), "tp");
  EXPECT_EQ(nearest("learning_rate", known), "");
  EXPECT_EQ(nearest("", known), "");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(nearest(std::string(1'000'000, 'x'), known), "");
}

TEST(Nearest, CompletesAWordThatBeginsOnlyOne) {
  EXPECT_EQ(nearest("warmup", {"warmup_steps", "decay_steps"}), "warmup_steps");
  EXPECT_EQ(nearest("num", {"num_heads_of_keys", "num_layers_of_all"}), "");
}

TEST(JoinOr, ReadsLikeASentence) {
  EXPECT_EQ(join_or({}), "");
  EXPECT_EQ(join_or({"a"}), "a");
  EXPECT_EQ(join_or({"a", "b"}), "a or b");
  EXPECT_EQ(join_or({"a", "b", "c"}), "a, b or c");
}

}  // namespace
}  // namespace trainer
