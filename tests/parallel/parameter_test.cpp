#include "parallel/parameter_store.h"

#include <cmath>
#include <numeric>

#include "tests/support/tensors.h"

namespace tests {

using parallel::Initializer;
using parallel::ParameterSpec;
using parallel::ParameterStore;
using parallel::WeightDecay;
using tensor::Dtype;
using tensor::Write;

namespace {

ParameterSpec matrix(const std::string& name, int64_t rows, int64_t columns) {
  return {.name = name, .shape = {rows, columns}, .init = {Initializer::Kind::normal, 0.02}};
}

ParameterSpec vector(const std::string& name, int64_t size, Initializer::Kind kind) {
  return {.name = name, .shape = {size}, .init = {kind}, .weight_decay = WeightDecay::no};
}

Values draw(const ParameterSpec& spec, uint64_t seed, int64_t begin, int64_t end) {
  Values values(static_cast<size_t>(end - begin));
  parallel::draw_initial_values(spec, seed, begin, values.data(), end - begin);
  return values;
}

}  // namespace

TEST(InitialValues, NeverChange) {
  // From an implementation in Python: Philox4x32-10 of the random123 paper, counter (pair of elements, FNV-1a of the
  // name), key = seed, Box-Muller in fp64. A change of these numbers changes every run.
  const Values expected{-0.0036271839340669236, -0.000919177361124206, 0.015956226183950786, 0.016097853332673807,
                        0.002895547471200805};

  const Values drawn = draw(matrix("layers.3.attention.q.weight", 7, 5), 1337, 0, 5);

  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(drawn[i], expected[i], 1e-15);
}

TEST(InitialValues, DoNotDependOnHowTheElementsAreCut) {
  const ParameterSpec spec = matrix("a", 41, 5);
  const Values whole = draw(spec, 7, 0, 205);

  for (const int64_t piece : {1, 2, 3, 64, 204}) {
    for (int64_t begin = 0; begin < 205; begin += piece) {
      const int64_t end = std::min<int64_t>(205, begin + piece);
      EXPECT_EQ(draw(spec, 7, begin, end), Values(whole.begin() + begin, whole.begin() + end)) << begin;
    }
  }
  EXPECT_TRUE(draw(spec, 7, 10, 10).empty());
}

TEST(InitialValues, DependOnNameAndSeed) {
  const Values values = draw(matrix("a", 4, 4), 7, 0, 16);

  EXPECT_NE(draw(matrix("b", 4, 4), 7, 0, 16), values);
  EXPECT_NE(draw(matrix("a", 4, 4), 8, 0, 16), values);
  EXPECT_EQ(draw(matrix("a", 2, 8), 7, 0, 16), values);
}

TEST(InitialValues, HaveTheirMeanAndDeviation) {
  const int64_t count = 100'000;
  const Values values = draw(matrix("a", count, 1), 7, 0, count);

  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  const double mean_square = std::inner_product(values.begin(), values.end(), values.begin(), 0.0) / count;

  const double deviations = 4;  // of the estimates: std / sqrt(n), and std / sqrt(2 n)
  EXPECT_NEAR(mean, 0, deviations * 0.02 / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(mean_square), 0.02, deviations * 0.02 / std::sqrt(2.0 * count));
}

class Store : public CpuTest {
 protected:
  Store() { add_parameters(store_); }

  static void add_parameters(ParameterStore& store) {
    store.begin_unit("embedding");
    store.add(matrix("token", 600, 451));  // more than one piece of initialize()
    store.begin_unit("layers.0");
    store.add(vector("norm", 3, Initializer::Kind::ones));
    store.add(matrix("q", 4, 3));
    store.add(matrix("k", 2, 3));
    store.add(vector("q.bias", 4, Initializer::Kind::zeros));
  }

  std::unique_ptr<parallel::Communicator> self_ = parallel::make_self_communicator("self");
  ParameterStore store_{{}, {*self_, *self_}};
};

TEST_F(Store, InitializesEveryDtypeToTheSameNumbersRounded) {
  const Values exact = draw(store_.at("token").spec(), 9, 0, 600 * 451);
  for (const Dtype dtype : {Dtype::fp64, Dtype::fp32, Dtype::bf16}) {
    ParameterStore store({}, {*self_, *self_});
    add_parameters(store);
    store.allocate(ops_, dtype);
    store.initialize(9);

    const Values values = values_of(store.at("token").value());
    for (size_t i = 0; i < exact.size(); ++i) {
      ASSERT_NEAR(values[i], exact[i], 0.5 * epsilon(dtype) * std::abs(exact[i])) << i;
    }
    EXPECT_EQ(values_of(store.at("norm").value()), Values(3, 1.0));
    EXPECT_EQ(values_of(store.at("q.bias").value()), Values(4, 0.0));
  }
}

TEST_F(Store, LaysOutAUnitBackToBack) {
  store_.allocate(ops_, Dtype::bf16);
  const parallel::ParameterUnit& unit = *store_.units().at(1);
  tensor::Tensor k = store_.at("k").value();
  fill(k, {1, 2, 3, 4, 5, 6});

  EXPECT_EQ(unit.name, "layers.0");
  EXPECT_EQ(unit.numel, 3 + 12 + 6 + 4);
  EXPECT_EQ(store_.stored_numel(), 600 * 451 + unit.numel);
  EXPECT_EQ(unit.values.dtype(), Dtype::bf16);
  EXPECT_EQ(unit.grads.dtype(), Dtype::fp32);
  EXPECT_EQ(values_of(unit.values.rows(15, 21)), (Values{1, 2, 3, 4, 5, 6}));
}

TEST_F(Store, SeesFusedParametersAsOneMatrix) {
  store_.allocate(ops_, Dtype::fp32);
  store_.initialize(9);
  const parallel::FusedParameter fused{{&store_.at("q"), &store_.at("k")}};

  const tensor::Tensor value = fused.value();

  EXPECT_EQ(value.shape(), (tensor::Shape{6, 3}));
  EXPECT_TRUE(is_same(value.rows(0, 4), store_.at("q").value()));
  EXPECT_TRUE(is_same(value.rows(4, 6), store_.at("k").value()));
  EXPECT_EQ(fused.grad().raw(), store_.at("q").grad().raw());
  EXPECT_FALSE(parallel::FusedParameter{}.value());
}

TEST_F(Store, RefusesToFuseWhatDoesNotLieTogether) {
  store_.allocate(ops_, Dtype::fp32);
  const parallel::FusedParameter fused{{&store_.at("k"), &store_.at("q")}};

  EXPECT_THROW(fused.value(), tensor::InternalError);
}

TEST_F(Store, RefusesANameTwiceAndAnUnknownOne) {
  EXPECT_THROW(store_.add(matrix("q", 1, 1)), tensor::InternalError);
  EXPECT_THROW(store_.at("v"), tensor::InternalError);
}

TEST_F(Store, OverwritesTheFirstGradientOfAStep) {
  const parallel::FusedParameter fused{{&store_.at("q"), &store_.at("k")}};

  EXPECT_EQ(fused.next_grad_write(), Write::overwrite);
  EXPECT_EQ(fused.next_grad_write(), Write::accumulate);
  EXPECT_EQ(store_.at("k").next_grad_write(), Write::accumulate);
  store_.begin_step();
  EXPECT_EQ(store_.at("k").next_grad_write(), Write::overwrite);
  EXPECT_THROW(fused.next_grad_write(), tensor::InternalError);  // q would overwrite, k accumulate
}

TEST_F(Store, ZeroesOnlyGradientsThatNothingWrote) {
  store_.allocate(ops_, Dtype::fp32);
  tensor::Tensor q = store_.at("q").grad(), k = store_.at("k").grad();
  fill(q, Values(12, 5.0));
  fill(k, Values(6, NAN));
  store_.begin_step();
  store_.at("q").next_grad_write();

  store_.reduce_gradients(*store_.units().at(1));
  store_.finish_gradients();

  EXPECT_EQ(values_of(store_.at("q").grad()), Values(12, 5.0));
  EXPECT_EQ(values_of(store_.at("k").grad()), Values(6, 0.0));
  EXPECT_EQ(store_.at("k").next_grad_write(), Write::accumulate);
}

TEST_F(Store, KeepsTheOrderOfRegistration) {
  std::vector<std::string> names;
  for (const parallel::Parameter* parameter : store_.parameters()) names.push_back(parameter->name());

  EXPECT_EQ(names, (std::vector<std::string>{"token", "norm", "q", "k", "q.bias"}));
}

}  // namespace tests
