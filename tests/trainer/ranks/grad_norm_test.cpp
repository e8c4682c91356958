/// The norm counts every logical element once, on every layout, and no layout changes a bit of it.

#include <cmath>

#include "model/flops.h"
#include "tests/support/tensors.h"
#include "tests/trainer/ranks/learner_fixture.h"
#include "trainer/grad_norm.h"

namespace tests {

class GradNormOnRanks : public LearnerRanksTest {
 protected:
  /// Gradient of every element whose optimizer state is on this rank, copies included: value_of(name, global index).
  /// Padding stays 0.
  template <class ValueOf>
  static void fill_gradients(parallel::ParameterStore& store, const ValueOf& value_of) {
    for (const auto& unit : store.units()) {
      Values values(static_cast<size_t>(unit->grad_sums.numel()), 0.0);
      const int64_t first = store.optimizer_range(*unit).begin;
      for (const parallel::Parameter* parameter : unit->parameters) {
        for (const auto& run : logical_runs(parameter->spec(), store.kept_range(*parameter))) {
          for (int64_t i = 0; i < run.count; ++i) {
            const int64_t at = parameter->offset() + run.stored_begin + i - first;
            values[static_cast<size_t>(at)] = value_of(parameter->name(), run.global_begin + i);
          }
        }
      }
      fill(unit->grad_sums, values);
    }
  }
  static double norm(LearnerOnRanks& run) {
    return trainer::grad_norm(run.store(), run.learner().ops(), run.context().world());
  }
  /// Every layout with every stage, tokens whole and sharded.
  std::vector<Settings> all_layouts() const {
    std::vector<Settings> all;
    for (const Settings& layout : layouts()) {
      for (const Settings& stage : stages()) {
        for (const char* tokens : {"false", "true"}) {
          all.push_back(layout + stage + Settings{fmt::format("parallel.tp_sequence={}", tokens)});
        }
      }
    }
    return all;
  }
};

TEST_F(GradNormOnRanks, OfOnesIsTheRootOfTheParameterCount) {
  for (const Settings& layout : all_layouts()) {
    const auto run = make(layout);
    const int64_t count = model::parameter_count(run->config().model);
    fill_gradients(run->store(), [](const std::string&, int64_t) { return 1.0; });

    EXPECT_EQ(norm(*run), std::sqrt(static_cast<double>(count))) << describe(layout);
    EXPECT_EQ(run->sum_over_ranks(run->store().owned_numel()), count) << describe(layout);
  }
}

TEST_F(GradNormOnRanks, IsBitwiseTheSameOnEveryLayout) {
  const auto value_of = [](const std::string& name, int64_t index) {
    const auto counter = tensor::Philox::counter(static_cast<uint64_t>(index), 7);
    const auto drawn = tensor::to_normals(tensor::Philox::draw(counter, tensor::Philox::key(tensor::hash_name(name))));
    return static_cast<double>(drawn[0]) * std::exp(6 * static_cast<double>(drawn[1]));  // over twenty binary orders
  };
  const auto alone = make_alone({});
  fill_gradients(alone->store(), value_of);
  const double expected = norm(*alone);

  for (const Settings& layout : all_layouts()) {
    const auto run = make(layout);
    fill_gradients(run->store(), value_of);
    EXPECT_EQ(norm(*run), expected) << describe(layout);
  }
}

TEST_F(GradNormOnRanks, IsNotFiniteOnAnyRankWhereOneElementIsNot) {
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    for (const Settings& stage : stages()) {
      const auto run = make(stage);
      fill_gradients(run->store(), [bad](const std::string& name, int64_t index) {
        return name.ends_with("layers.1.mlp.down.weight") && index == 100 ? bad : 1.0;
      });
      EXPECT_FALSE(std::isfinite(norm(*run))) << describe(stage) << " " << bad;
    }
  }
}

}  // namespace tests
