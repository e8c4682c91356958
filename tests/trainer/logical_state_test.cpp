#include "trainer/logical_state.h"

#include <gtest/gtest.h>

#include "tests/trainer/tiny_run.h"

namespace trainer {
namespace {

TEST(LogicalState, OfOneRankIsTheLearnersOwnMemory) {
  const TinyData data;
  const Config config = data.config(data.folder() / "run", {});
  tensor::Backend backend = tiny_backend();
  LearnerAlone learner(config, backend);
  const std::vector<StateFragment> fragments = learner.state();

  const LogicalState logical(learner.state(), learner.parameters(), learner.context().world());

  const std::vector<checkpoint::NamedTensor> tensors = logical.tensors();
  ASSERT_EQ(tensors.size(), fragments.size());
  for (size_t i = 0; i < tensors.size(); ++i) EXPECT_EQ(tensors[i].tensor->raw(), fragments[i].values.raw());
}

}  // namespace
}  // namespace trainer
