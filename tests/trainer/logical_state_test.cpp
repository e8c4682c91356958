#include "trainer/logical_state.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/trainer/tiny_run.h"

namespace trainer {
namespace {

TEST(LogicalState, OfOneRankIsTheLearnersOwnMemory) {
  const TinyData data;
  const Config config = data.config(data.folder() / "run", {});
  tensor::Backend backend = tiny_backend();
  LearnerAlone learner(config, backend);
  const std::vector<StateFragment> fragments = learner.state();

  LogicalState logical(learner.state(), learner.parameters(), learner.context().world(), *backend.device);

  const std::vector<checkpoint::NamedTensor> tensors = logical.tensors();
  ASSERT_EQ(tensors.size(), fragments.size());
  for (const StateFragment& fragment : fragments) {
    const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const checkpoint::NamedTensor& named) {
      return named.name == fragment.kind + "/" + fragment.parameter->name();
    });
    ASSERT_NE(found, tensors.end()) << fragment.parameter->name();
    EXPECT_EQ(found->tensor->raw(), fragment.values.raw());
  }
}

}  // namespace
}  // namespace trainer
