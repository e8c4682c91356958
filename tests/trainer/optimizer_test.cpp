#include "trainer/optimizer.h"

#include <gmock/gmock.h>

#include "tests/support/tensors.h"
#include "trainer/grad_norm.h"

namespace trainer {
namespace {

using parallel::ParameterSpec;
using parallel::WeightDecay;
using tensor::Dtype;
using tests::Values;

/// One unit of a matrix and a vector, one more of a vector between two matrices.
class OptimizerTest : public tests::CpuTest {
 protected:
  void make(Dtype dtype, const OptimizerConfig& config = {}) {
    store_.begin_unit("first");
    add("matrix", {3, 5}, WeightDecay::yes);
    add("bias", {5}, WeightDecay::no);
    store_.begin_unit("second");
    add("up", {4, 2}, WeightDecay::yes);
    add("norm", {7}, WeightDecay::no);
    add("down", {2, 4}, WeightDecay::yes);
    store_.allocate(ops_, dtype);
    store_.initialize(kSeed);
    optimizer_.emplace(config, store_, ops_, kSeed);
    for (const auto& unit : store_.units()) {
      tests::fill(unit->grads, tests::random_values(unit->numel, 5));
    }
  }
  void add(const std::string& name, tensor::Shape shape, WeightDecay weight_decay) {
    store_.add({.name = name,
                .shape = shape,
                .init = {parallel::Initializer::Kind::normal, 0.3},
                .weight_decay = weight_decay});
  }
  Values values(const std::string& name) { return tests::values_of(store_.at(name).value()); }
  Values state(const std::string& name) {
    for (const StateFragment& fragment : optimizer_->state()) {
      if (name_of(fragment) == name) return tests::values_of(fragment.values);
    }
    ADD_FAILURE() << name;
    return {};
  }

  static std::string name_of(const StateFragment& fragment) { return fragment.kind + "/" + fragment.parameter->name(); }
  double norm() { return grad_norm(store_, ops_, *self_); }

  static constexpr uint64_t kSeed = 11;
  std::unique_ptr<parallel::Communicator> self_ = parallel::make_self_communicator("self");
  parallel::ParameterStore store_{{}, {*self_, *self_}};
  std::optional<Optimizer> optimizer_;
};

/// AdamW (Loshchilov & Hutter 2019), element by element, in double.
struct NaiveAdamW {
  OptimizerConfig config;
  double weight_decay = 0;
  Values value, exp_avg, exp_avg_sq;

  NaiveAdamW(const OptimizerConfig& of, double decay, Values start)
      : config(of),
        weight_decay(decay),
        value(std::move(start)),
        exp_avg(value.size(), 0.0),
        exp_avg_sq(value.size(), 0.0) {}

  void update(const Values& grad, int64_t step, double lr, double grad_scale) {
    for (size_t i = 0; i < value.size(); ++i) {
      const double g = grad[i] * grad_scale;
      exp_avg[i] = config.beta1 * exp_avg[i] + (1 - config.beta1) * g;
      exp_avg_sq[i] = config.beta2 * exp_avg_sq[i] + (1 - config.beta2) * g * g;
      const double mean = exp_avg[i] / (1 - std::pow(config.beta1, static_cast<double>(step)));
      const double variance = exp_avg_sq[i] / (1 - std::pow(config.beta2, static_cast<double>(step)));
      value[i] -= lr * (mean / (std::sqrt(variance) + config.eps) + weight_decay * value[i]);
    }
  }
};

TEST_F(OptimizerTest, UpdatesEveryParameterLikeAdamWWithItsOwnDecay) {
  const OptimizerConfig config{.beta1 = 0.8, .beta2 = 0.9, .eps = 1e-6, .weight_decay = 0.3};
  make(Dtype::fp64, config);
  std::map<std::string, NaiveAdamW> naive;
  for (const parallel::Parameter* parameter : store_.parameters()) {
    const double decay = parameter->spec().weight_decay == WeightDecay::yes ? config.weight_decay : 0;
    naive.emplace(parameter->name(), NaiveAdamW(config, decay, values(parameter->name())));
  }

  for (int64_t step = 1; step <= 4; ++step) {
    optimizer_->update(ops_, {.step = step, .lr = 0.01 * static_cast<double>(step), .grad_scale = 0.5});
    for (auto& [name, expected] : naive) {
      expected.update(tests::values_of(std::as_const(store_.at(name)).grad()), step, 0.01 * static_cast<double>(step),
                      0.5);
    }
  }

  for (const auto& [name, expected] : naive) {
    EXPECT_THAT(values(name), testing::Pointwise(testing::DoubleNear(1e-14), expected.value)) << name;
    EXPECT_THAT(state("exp_avg/" + name), testing::Pointwise(testing::DoubleNear(1e-14), expected.exp_avg)) << name;
    EXPECT_THAT(state("exp_avg_sq/" + name), testing::Pointwise(testing::DoubleNear(1e-14), expected.exp_avg_sq))
        << name;
  }
}

TEST_F(OptimizerTest, WithoutGradientDecaysMatricesAndLeavesVectorsAlone) {
  make(Dtype::fp64, {.weight_decay = 0.5});
  for (const auto& unit : store_.units()) device_.zero(unit->grads);
  std::map<std::string, Values> before;
  for (const char* name : {"matrix", "bias", "up", "norm", "down"}) before[name] = values(name);

  optimizer_->update(ops_, {.step = 1, .lr = 0.1});

  for (const char* name : {"bias", "norm"}) EXPECT_EQ(values(name), before[name]) << name;
  for (const char* name : {"matrix", "up", "down"}) {
    const Values after = values(name);
    for (size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], before[name][i] * (1 - 0.1 * 0.5), 1e-15) << name;
  }
}

TEST_F(OptimizerTest, NormIsThatOfTheWholeGradient) {
  make(Dtype::fp64);
  double sum = 0;
  for (const parallel::Parameter* parameter : store_.parameters()) {
    for (const double g : tests::values_of(parameter->grad())) sum += g * g;
  }

  EXPECT_NEAR(norm(), std::sqrt(sum), 1e-12);
}

TEST_F(OptimizerTest, NormIsNotFiniteWhereAnyElementIsNot) {
  make(Dtype::fp32);
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    tensor::Tensor& grads = store_.units().back()->grads;
    Values values = tests::random_values(grads.numel(), 5);
    values.back() = bad;
    tests::fill(grads, values);

    EXPECT_FALSE(std::isfinite(norm())) << bad;
  }
}

TEST_F(OptimizerTest, NormOfLargeGradientsDoesNotOverflow) {
  make(Dtype::fp32);
  for (const auto& unit : store_.units()) {
    tests::fill(unit->grads, Values(static_cast<size_t>(unit->numel), 1e30));  // the squares exceed fp32
  }

  const double count = static_cast<double>(store_.stored_numel());
  EXPECT_NEAR(norm(), 1e30 * std::sqrt(count), 1e24);
}

TEST_F(OptimizerTest, KeepsFp32MasterWeightsOfABf16Model) {
  make(Dtype::bf16, {.weight_decay = 0});
  const Values start = state("weights/norm");

  // a step of 1e-5 is lost in bf16 on all numbers above 2^-8
  for (int64_t step = 1; step <= 50; ++step) optimizer_->update(ops_, {.step = step, .lr = 1e-5});

  const Values master = state("weights/norm"), model = values("norm");
  const Values grads = tests::values_of(std::as_const(store_.at("norm")).grad());
  for (size_t i = 0; i < master.size(); ++i) {
    EXPECT_NEAR(master[i] - start[i], grads[i] > 0 ? -5e-4 : 5e-4, 1e-6);
    EXPECT_EQ(model[i], static_cast<float>(tensor::bfloat16(static_cast<float>(master[i]))));
  }
}

TEST_F(OptimizerTest, StartsTheMasterWeightsBeforeRounding) {
  make(Dtype::bf16);

  Values drawn(15);
  parallel::draw_initial_values(store_.at("matrix").spec(), kSeed, 0, drawn.data(), 15);
  const Values master = state("weights/matrix");
  for (size_t i = 0; i < drawn.size(); ++i) EXPECT_EQ(master[i], static_cast<float>(drawn[i]));
}

TEST_F(OptimizerTest, RoundsLoadedMasterWeightsIntoTheModel) {
  make(Dtype::bf16);
  for (StateFragment& fragment : optimizer_->state()) {
    if (name_of(fragment) == "weights/up") tests::fill(fragment.values, Values(8, 1.2345));
  }

  optimizer_->refresh_values(ops_);

  EXPECT_EQ(values("up"), Values(8, static_cast<float>(tensor::bfloat16(1.2345f))));
}

TEST_F(OptimizerTest, StateNamesWeightsAndMomentsOfEveryParameter) {
  make(Dtype::fp32);

  std::vector<std::string> names;
  for (const StateFragment& fragment : optimizer_->state()) names.push_back(name_of(fragment));

  EXPECT_EQ(names.size(), 15u);
  EXPECT_THAT(names, testing::IsSupersetOf({"weights/matrix", "exp_avg/matrix", "exp_avg_sq/matrix", "weights/norm"}));
}

/// A bias of four experts between two vectors.
class RouterBiasOfOptimizer : public OptimizerTest {
 protected:
  void make_router(Dtype dtype) {
    store_.begin_unit("router");
    add("before", {3}, WeightDecay::no);
    store_.add({.name = "counts",
                .shape = {4},
                .init = {},
                .weight_decay = WeightDecay::no,
                .update = parallel::Update::balance,
                .balance = {.rate = 0.125, .share = 0.5}});
    add("after", {2}, WeightDecay::no);
    store_.allocate(ops_, dtype);
    store_.initialize(kSeed);
    optimizer_.emplace(OptimizerConfig{}, store_, ops_, kSeed);
    tests::fill(store_.units()[0]->grads, {3, 0, 0, 9, 10, 11, 1000, 0, 4});
  }
};

TEST_F(RouterBiasOfOptimizer, MovesTowardsItsShareOfTokens) {
  for (int step = 1; step <= 2; ++step) {
    if (step == 1) make_router(Dtype::fp32);
    optimizer_->update(ops_, {.step = step, .lr = 0.1, .grad_scale = 1e-3, .tokens = 20});
  }

  EXPECT_EQ(values("counts"), (Values{0.25, 0, -0.25, -0.25}));
  EXPECT_EQ(state("exp_avg/counts"), Values(4, 0));
  EXPECT_NE(state("exp_avg/before")[0], 0);
  EXPECT_NE(state("exp_avg/after")[1], 0);
}

TEST_F(RouterBiasOfOptimizer, MovesItsMasterInBf16) {
  make_router(Dtype::bf16);
  optimizer_->update(ops_, {.step = 1, .lr = 0.1, .tokens = 20});

  EXPECT_EQ(values("counts"), (Values{0.125, 0, -0.125, -0.125}));
  EXPECT_EQ(state("weights/counts"), (Values{0.125, 0, -0.125, -0.125}));
}

TEST_F(RouterBiasOfOptimizer, HasNoPartInTheNorm) {
  make_router(Dtype::fp32);

  EXPECT_EQ(norm(), 5);
}

}  // namespace
}  // namespace trainer
