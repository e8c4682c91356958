#include <gtest/gtest.h>

#include "tests/tensor/attention_cases.h"

namespace tensor {
namespace {

using tests::AttentionCase;
using tests::AttentionValues;
using tests::Sums;
using tests::Values;

constexpr double kScale = 0.6;

/// The tensors of one case. q, k and v lie side by side in one matrix where they have as many tokens, as behind a
/// fused projection; so do their gradients.
struct AttentionTensors {
  AttentionTensors(Device& device, const AttentionCase& c, Dtype dtype)
      : q_width(c.heads * c.head_dim),
        kv_width(c.kv_heads * c.head_dim),
        query_memory(tests::undefined_tensor(device, {c.q_shape()[0], q_width + 2 * kv_width}, dtype)),
        key_memory(tests::undefined_tensor(device, {c.kv_shape()[0], q_width + 2 * kv_width}, dtype)),
        query_gradients(tests::undefined_tensor(device, query_memory.shape(), dtype)),
        key_gradients(tests::undefined_tensor(device, key_memory.shape(), dtype)),
        q(query_memory.columns(0, q_width).reshaped(c.q_shape())),
        k(key_memory.columns(q_width, q_width + kv_width).reshaped(c.kv_shape())),
        v(key_memory.columns(q_width + kv_width, q_width + 2 * kv_width).reshaped(c.kv_shape())),
        dq(query_gradients.columns(0, q_width).reshaped(c.q_shape())),
        dk(key_gradients.columns(q_width, q_width + kv_width).reshaped(c.kv_shape())),
        dv(key_gradients.columns(q_width + kv_width, q_width + 2 * kv_width).reshaped(c.kv_shape())),
        o(tests::undefined_tensor(device, c.q_shape(), dtype)),
        lse(tests::undefined_tensor(device, c.lse_shape(), accumulator_of(dtype))),
        d_o(tests::random_tensor(device, c.q_shape(), dtype, 4)),
        query_positions(positions(device, c.num_sequences, c.visibility.query)),
        first_visible(positions(device, c.num_sequences, c.visibility.first)),
        key_positions(positions(device, c.num_sequences, c.visibility.key)),
        num_sequences(c.num_sequences) {
    tests::fill(q, tests::random_values(q.numel(), 1));
    tests::fill(k, tests::random_values(k.numel(), 2));
    tests::fill(v, tests::random_values(v.numel(), 3));
  }

  static Tensor positions(Device& device, int64_t num_sequences, const std::vector<int>& of_one) {
    Values all;
    for (int64_t i = 0; i < num_sequences; ++i) all.insert(all.end(), of_one.begin(), of_one.end());
    return tests::make_tensor(device, {static_cast<int64_t>(all.size())}, Dtype::int32, all);
  }

  AttentionMask mask() const { return {num_sequences, query_positions, first_visible, key_positions}; }
  void forward(Ops& ops) { ops.attention(q, k, v, mask(), kScale, o, lse); }
  void backward(Ops& ops) { ops.attention_backward(q, k, v, o, lse, d_o, mask(), kScale, dq, dk, dv); }
  AttentionValues values() const {
    return {tests::values_of(q),   tests::values_of(k), tests::values_of(v),
            tests::values_of(d_o), tests::values_of(o), tests::values_of(lse)};
  }

  int64_t q_width, kv_width;
  Tensor query_memory, key_memory, query_gradients, key_gradients;
  Tensor q, k, v, dq, dk, dv, o, lse, d_o, query_positions, first_visible, key_positions;
  int64_t num_sequences;
};

/// Relative error of a probability whose score is a sum of head_dim products, exponentiated and divided.
double probability_tolerance(Dtype dtype, int64_t head_dim, double score_magnitude) {
  const Dtype arithmetic = accumulator_of(dtype);
  return 2 * tests::sum_tolerance(arithmetic, static_cast<double>(head_dim), score_magnitude) +
         8 * tests::epsilon(arithmetic);
}

/// `error` is the relative error of the addends themselves.
void expect_close(const Tensor& actual, const Sums& expected, int64_t length, double error, const std::string& what) {
  const Values values = tests::values_of(actual);
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    const double tolerance = tests::sum_tolerance(actual.dtype(), static_cast<double>(length), expected[i].magnitude) +
                             error * expected[i].magnitude;
    ASSERT_NEAR(values[i], expected[i].value, tolerance) << what << " at " << i;
  }
}

class AttentionTest : public tests::CpuTest {
 protected:
  void expect_matches_naive(const AttentionCase& c, Dtype dtype) {
    SCOPED_TRACE(c.visibility.name + " in " + to_string(dtype) + ", q " + c.q_shape().str());
    AttentionTensors x(device_, c, dtype);

    x.forward(ops_);
    x.backward(ops_);

    const tests::ExpectedForward forward = tests::naive_attention(c, x.values(), kScale);
    const double error = probability_tolerance(dtype, c.head_dim, forward.score_magnitude);
    expect_close(x.o, forward.o, c.num_keys(), error, "o");
    const Values lse = tests::values_of(x.lse);
    for (size_t i = 0; i < lse.size(); ++i) {
      if (std::isinf(forward.lse[i]))
        EXPECT_EQ(lse[i], forward.lse[i]);
      else
        EXPECT_NEAR(lse[i], forward.lse[i], error * (1 + std::abs(forward.lse[i]))) << "lse at " << i;
    }
    const tests::ExpectedBackward backward = tests::naive_attention_backward(c, x.values(), kScale);
    const int64_t group = c.heads / c.kv_heads;
    expect_close(x.dq, backward.dq, c.num_keys() + c.head_dim, error, "dq");
    expect_close(x.dk, backward.dk, c.num_queries() * group + c.head_dim, error, "dk");
    expect_close(x.dv, backward.dv, c.num_queries() * group, error, "dv");
  }
};

TEST_F(AttentionTest, MatchesNaiveLoopUnderEveryMask) {
  for (const tests::Visibility& visibility : tests::all_visibilities()) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp64}) {
      expect_matches_naive({.visibility = visibility, .num_sequences = 2, .heads = 2, .kv_heads = 2}, dtype);
    }
  }
}

TEST_F(AttentionTest, MatchesNaiveLoopAtEveryHeadDimAndRatioOfHeads) {
  for (const int64_t head_dim : {1, 5, 16, 33, 64, 80}) {
    for (const int64_t kv_heads : {1, 2, 4}) {
      for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp64}) {
        expect_matches_naive({tests::documents_and_window(70, 50, 30), 2, 4, kv_heads, head_dim}, dtype);
      }
    }
  }
}

TEST_F(AttentionTest, BackwardIsTheDerivativeOfForward) {
  const AttentionCase c{tests::documents_and_window(9, 6, 4), 1, 4, 2, 3};
  AttentionTensors x(device_, c, Dtype::fp64);
  const auto loss = [&] {  // sum of d_o * o
    x.forward(ops_);
    const Values o = tests::values_of(x.o), d_o = tests::values_of(x.d_o);
    double sum = 0;
    for (size_t i = 0; i < o.size(); ++i) sum += o[i] * d_o[i];
    return sum;
  };
  loss();
  x.backward(ops_);

  for (auto [operand, gradient] : {std::pair{&x.q, &x.dq}, {&x.k, &x.dk}, {&x.v, &x.dv}}) {
    const Values values = tests::values_of(*operand), gradients = tests::values_of(*gradient);
    for (size_t i = 0; i < values.size(); ++i) {
      constexpr double kStep = 1e-5;  // its square, and epsilon over it, are both 1e-10 of the loss
      Values moved = values;
      moved[i] = values[i] + kStep;
      tests::fill(*operand, moved);
      const double above = loss();
      moved[i] = values[i] - kStep;
      tests::fill(*operand, moved);
      EXPECT_NEAR(gradients[i], (above - loss()) / (2 * kStep), 1e-8);
    }
    tests::fill(*operand, values);
  }
}

TEST_F(AttentionTest, PartsMergedByLogSumExpGiveTheWhole) {
  const AttentionCase whole{tests::causal(150), 1, 2, 2, 5};
  AttentionTensors x(device_, whole, Dtype::fp64);
  x.forward(ops_);
  Values merged(static_cast<size_t>(x.o.numel())), total(static_cast<size_t>(x.lse.numel()));
  const Values lse = tests::values_of(x.lse);

  for (const auto& [begin, end] : {std::pair{0, 40}, {40, 131}, {131, 150}}) {
    Tensor o = tests::undefined_tensor(device_, x.o.shape(), Dtype::fp64);
    Tensor part_lse = tests::undefined_tensor(device_, x.lse.shape(), Dtype::fp64);
    const Tensor keys = x.key_positions.rows(begin, end);
    ops_.attention(x.q, x.k.rows(begin, end), x.v.rows(begin, end), {1, x.query_positions, x.first_visible, keys},
                   kScale, o, part_lse);
    const Values part = tests::values_of(o), weight = tests::values_of(part_lse);
    for (size_t i = 0; i < merged.size(); ++i) {
      merged[i] += part[i] * std::exp(weight[i / 5] - lse[i / 5]);
    }
    for (size_t i = 0; i < total.size(); ++i) total[i] += std::exp(weight[i] - lse[i]);
  }

  const Values o = tests::values_of(x.o);
  for (size_t i = 0; i < o.size(); ++i) EXPECT_NEAR(merged[i], o[i], 1e-13);
  for (const double sum : total) EXPECT_NEAR(sum, 1, 1e-13);
}

TEST_F(AttentionTest, MergesPartsToTheWhole) {
  const AttentionCase whole{tests::documents_and_window(150, 70, 40), 1, 4, 2, 5};
  for (const Dtype dtype : {Dtype::fp32, Dtype::bf16, Dtype::fp64}) {
    AttentionTensors x(device_, whole, dtype);
    x.forward(ops_);
    const Dtype acc = accumulator_of(dtype);
    Tensor sum = tests::make_tensor(device_, x.o.shape(), acc, Values(static_cast<size_t>(x.o.numel()), 0.0));
    Tensor lse = tests::make_tensor(device_, x.lse.shape(), acc, Values(static_cast<size_t>(x.lse.numel()), -INFINITY));

    for (const auto& [begin, end] : {std::pair{131, 150}, {0, 40}, {40, 131}}) {  // most see nothing of the first
      Tensor o = tests::undefined_tensor(device_, x.o.shape(), dtype);
      Tensor part_lse = tests::undefined_tensor(device_, x.lse.shape(), acc);
      const Tensor keys = x.key_positions.rows(begin, end);
      ops_.attention(x.q, x.k.rows(begin, end), x.v.rows(begin, end), {1, x.query_positions, x.first_visible, keys},
                     kScale, o, part_lse);
      ops_.merge_attention(o, part_lse, sum, lse);
    }

    const Values merged = tests::values_of(sum), o = tests::values_of(x.o);
    const Values total = tests::values_of(lse), expected = tests::values_of(x.lse);
    for (size_t i = 0; i < o.size(); ++i) EXPECT_NEAR(merged[i], o[i], 40 * tests::epsilon(dtype));
    for (size_t i = 0; i < total.size(); ++i) EXPECT_NEAR(total[i], expected[i], 40 * tests::epsilon(acc));
  }
}

TEST_F(AttentionTest, MergesPartsThatNobodySeesToNothing) {
  const auto none = [&](Dtype dtype, const Shape& shape, double value) {
    return tests::make_tensor(device_, shape, dtype, Values(static_cast<size_t>(shape.numel()), value));
  };
  const Tensor block_o = none(Dtype::fp32, {3, 2, 5}, 0), block_lse = none(Dtype::fp32, {3, 2}, -INFINITY);
  Tensor o = none(Dtype::fp32, {3, 2, 5}, 0), lse = none(Dtype::fp32, {3, 2}, -INFINITY);

  ops_.merge_attention(block_o, block_lse, o, lse);

  EXPECT_EQ(tests::values_of(o), Values(30, 0.0));
  EXPECT_EQ(tests::values_of(lse), Values(6, -INFINITY));
}

TEST_F(AttentionTest, GradientsOfPartsUnderTheWholeLogSumExpAddUp) {
  const AttentionCase whole{tests::causal(150), 1, 2, 1, 5};
  AttentionTensors x(device_, whole, Dtype::fp64);
  x.forward(ops_);
  x.backward(ops_);
  Values dq(static_cast<size_t>(x.q.numel())), dk, dv;

  for (const auto& [begin, end] : {std::pair{0, 40}, {40, 131}, {131, 150}}) {
    Tensor part_dq = tests::undefined_tensor(device_, x.q.shape(), Dtype::fp64);
    Tensor part_dk = tests::undefined_tensor(device_, {end - begin, 1, 5}, Dtype::fp64);
    Tensor part_dv = tests::undefined_tensor(device_, {end - begin, 1, 5}, Dtype::fp64);
    const Tensor keys = x.key_positions.rows(begin, end);
    ops_.attention_backward(x.q, x.k.rows(begin, end), x.v.rows(begin, end), x.o, x.lse, x.d_o,
                            {1, x.query_positions, x.first_visible, keys}, kScale, part_dq, part_dk, part_dv);
    const Values a = tests::values_of(part_dq), b = tests::values_of(part_dk), c = tests::values_of(part_dv);
    for (size_t i = 0; i < dq.size(); ++i) dq[i] += a[i];
    dk.insert(dk.end(), b.begin(), b.end());
    dv.insert(dv.end(), c.begin(), c.end());
  }

  const auto expect_same = [](const Values& actual, const Tensor& expected) {
    const Values values = tests::values_of(expected);
    ASSERT_EQ(actual.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(actual[i], values[i], 1e-12);
  };
  expect_same(dq, x.dq);
  expect_same(dk, x.dk);
  expect_same(dv, x.dv);
}

TEST_F(AttentionTest, QueriesThatSeeNoKeyGiveZerosAndNoNan) {
  AttentionTensors x(device_, {tests::between("before", tests::range(0, 70), tests::range(70, 140)), 1, 2, 1, 5},
                     Dtype::fp32);

  x.forward(ops_);
  x.backward(ops_);

  for (const double lse : tests::values_of(x.lse)) EXPECT_EQ(lse, -std::numeric_limits<double>::infinity());
  for (const Tensor* result : {&x.o, &x.dq, &x.dk, &x.dv}) {
    for (const double value : tests::values_of(*result)) EXPECT_EQ(value, 0);
  }
}

TEST_F(AttentionTest, NanInAQueryStaysInItsRow) {
  AttentionTensors x(device_, {tests::causal(9), 1, 1, 1, 5}, Dtype::fp32);
  x.q.data<float>()[3 * x.q.row_stride() + 2] = std::nanf("");

  x.forward(ops_);

  const Values o = tests::values_of(x.o);
  for (size_t i = 0; i < o.size(); ++i) EXPECT_EQ(std::isnan(o[i]), i / 5 == 3);
}

TEST_F(AttentionTest, SurvivesScoresThatOverflowExp) {
  AttentionTensors x(device_, {tests::causal(70), 1, 1, 1, 5}, Dtype::fp32);
  for (Tensor* operand : {&x.q, &x.k}) {
    Values values = tests::values_of(*operand);
    for (double& value : values) value *= 100;
    tests::fill(*operand, values);
  }

  x.forward(ops_);
  x.backward(ops_);

  for (const Tensor* result : {&x.o, &x.lse, &x.dq, &x.dk, &x.dv}) {
    for (const double value : tests::values_of(*result)) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST_F(AttentionTest, TakesNoTokensAndNoKeys) {
  AttentionTensors none(device_, {tests::causal(0), 1, 2, 1, 5}, Dtype::fp32);
  none.forward(ops_);
  none.backward(ops_);

  AttentionTensors no_keys(device_, {tests::between("no keys", {0, 1, 2}, {}), 1, 2, 1, 5}, Dtype::fp32);
  no_keys.forward(ops_);
  no_keys.backward(ops_);

  for (const double value : tests::values_of(no_keys.o)) EXPECT_EQ(value, 0);
  for (const double value : tests::values_of(no_keys.dq)) EXPECT_EQ(value, 0);
}

TEST_F(AttentionTest, DoesNotDependOnTheNumberOfThreads) {
  const AttentionCase c{tests::documents_and_window(150, 70, 40), 3, 4, 2, 33};
  AttentionTensors two(device_, c, Dtype::fp32);
  two.forward(ops_);
  two.backward(ops_);

  for (const int num_threads : {1, 3}) {
    const Backend backend = make_cpu_backend({.num_threads = num_threads});
    AttentionTensors other(*backend.device, c, Dtype::fp32);
    other.forward(*backend.ops);
    other.backward(*backend.ops);
    EXPECT_TRUE(tests::is_same(two.o, other.o));
    EXPECT_TRUE(tests::is_same(two.lse, other.lse));
    EXPECT_TRUE(tests::is_same(two.dq, other.dq));
    EXPECT_TRUE(tests::is_same(two.dk, other.dk));
    EXPECT_TRUE(tests::is_same(two.dv, other.dv));
  }
}

}  // namespace
}  // namespace tensor
