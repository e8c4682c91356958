#pragma once
/// Shapes and masks for the tests of attention, and naive loops in fp64 to compare with.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/tensors.h"

namespace tests {

/// Which sees which in one sequence: key j if first[i] <= key[j] <= query[i]. Every sequence of a case has the same.
struct Visibility {
  std::string name;
  std::vector<int> query, first, key;
};

struct AttentionCase {
  Visibility visibility;
  int64_t num_sequences = 1, heads = 1, kv_heads = 1, head_dim = 5;

  int64_t num_queries() const { return static_cast<int64_t>(visibility.query.size()); }
  int64_t num_keys() const { return static_cast<int64_t>(visibility.key.size()); }
  tensor::Shape q_shape() const { return {num_sequences * num_queries(), heads, head_dim}; }
  tensor::Shape kv_shape() const { return {num_sequences * num_keys(), kv_heads, head_dim}; }
  tensor::Shape lse_shape() const { return {num_sequences * num_queries(), heads}; }
};

inline std::vector<int> range(int begin, int end) {
  std::vector<int> values;
  for (int i = begin; i < end; ++i) values.push_back(i);
  return values;
}

inline Visibility causal(int length) {
  return {"causal " + std::to_string(length), range(0, length), std::vector<int>(static_cast<size_t>(length), 0),
          range(0, length)};
}

/// Documents of `document` tokens, and no further back than `window` tokens.
inline Visibility documents_and_window(int length, int document, int window) {
  Visibility v = causal(length);
  v.name += ", documents of " + std::to_string(document) + ", window " + std::to_string(window);
  for (int i = 0; i < length; ++i) v.first[static_cast<size_t>(i)] = std::max(i / document * document, i - window + 1);
  return v;
}

/// Queries and keys at any positions.
inline Visibility between(std::string name, std::vector<int> query, std::vector<int> key) {
  return {std::move(name), query, std::vector<int>(query.size(), 0), key};
}

/// Positions of the first of two ranks that each hold an early and a late quarter of a sequence.
inline std::vector<int> zigzag(int length) {
  std::vector<int> positions = range(0, length / 4), late = range(length - length / 4, length);
  positions.insert(positions.end(), late.begin(), late.end());
  return positions;
}

/// 0 .. length - 1 in an order without pattern.
inline std::vector<int> shuffled(int length) {
  std::vector<int> positions(static_cast<size_t>(length));
  for (int i = 0; i < length; ++i) positions[static_cast<size_t>(i)] = (i * 37 + 11) % length;
  return positions;
}

/// Queries at the end of 128 positions, among which, after some hundred, are a few at the beginning.
inline std::vector<int> early_among_late() {
  std::vector<int> positions;
  for (int i = 0; i < 200; ++i) positions.push_back(150 <= i && i < 170 ? i - 150 : 100 + i % 28);
  return positions;
}

inline std::vector<Visibility> all_visibilities() {
  return {causal(1),
          causal(7),
          causal(64),
          causal(150),
          documents_and_window(150, 40, 1000),
          documents_and_window(150, 1000, 9),
          documents_and_window(150, 70, 33),
          between("one query after 13 keys", {12}, range(0, 13)),
          between("queries after all keys", range(70, 80), range(0, 70)),
          between("queries before all keys", range(0, 9), range(9, 80)),
          between("some queries before all keys", range(0, 100), range(50, 130)),
          between("zigzag", zigzag(300), zigzag(300)),
          between("shuffled", shuffled(131), shuffled(100)),
          between("in order, over shuffled keys", range(0, 100), shuffled(100)),
          between("early among late", early_among_late(), range(0, 128))};
}

/// A sum, and the sum of the absolute values of its addends.
struct Sum {
  double value = 0, magnitude = 0;
  void add(double x) { add(x, std::abs(x)); }
  void add(double x, double x_magnitude) {
    value += x;
    magnitude += x_magnitude;
  }
};
using Sums = std::vector<Sum>;

/// Operands [tokens, heads, head_dim], as they are after rounding to the tensor's dtype.
struct AttentionValues {
  Values q, k, v, d_o, o, lse;
};

struct ExpectedForward {
  Sums o;
  Values lse;
  double score_magnitude = 0;  ///< largest sum of |q * k| * scale
};
struct ExpectedBackward {
  Sums dq, dk, dv;
};

/// Calls body(query token, head, key token, kv head) for all pairs that see each other.
inline void for_each_pair(const AttentionCase& c, const std::function<void(int64_t, int64_t, int64_t, int64_t)>& body) {
  const Visibility& v = c.visibility;
  for (int64_t sequence = 0; sequence < c.num_sequences; ++sequence) {
    for (int64_t head = 0; head < c.heads; ++head) {
      for (size_t i = 0; i < v.query.size(); ++i) {
        for (size_t j = 0; j < v.key.size(); ++j) {
          if (v.first[i] > v.key[j] || v.key[j] > v.query[i]) continue;
          body(sequence * c.num_queries() + static_cast<int64_t>(i), head,
               sequence * c.num_keys() + static_cast<int64_t>(j), head / (c.heads / c.kv_heads));
        }
      }
    }
  }
}

inline Sum dot(const Values& a, int64_t a_row, const Values& b, int64_t b_row, int64_t n) {
  Sum sum;
  for (int64_t i = 0; i < n; ++i)
    sum.add(a[static_cast<size_t>(a_row * n + i)] * b[static_cast<size_t>(b_row * n + i)]);
  return sum;
}

inline ExpectedForward naive_attention(const AttentionCase& c, const AttentionValues& x, double scale) {
  ExpectedForward expected;
  const size_t rows = static_cast<size_t>(c.lse_shape().numel()), n = static_cast<size_t>(c.head_dim);
  Values total(rows);
  for_each_pair(c, [&](int64_t query, int64_t head, int64_t key, int64_t kv_head) {
    const Sum score = dot(x.q, query * c.heads + head, x.k, key * c.kv_heads + kv_head, c.head_dim);
    expected.score_magnitude = std::max(expected.score_magnitude, score.magnitude * scale);
    total[static_cast<size_t>(query * c.heads + head)] += std::exp(score.value * scale);
  });
  expected.o.resize(rows * n);
  for_each_pair(c, [&](int64_t query, int64_t head, int64_t key, int64_t kv_head) {
    const size_t row = static_cast<size_t>(query * c.heads + head),
                 kv = static_cast<size_t>(key * c.kv_heads + kv_head);
    const double score = dot(x.q, query * c.heads + head, x.k, key * c.kv_heads + kv_head, c.head_dim).value * scale;
    for (size_t i = 0; i < n; ++i) expected.o[row * n + i].add(std::exp(score) / total[row] * x.v[kv * n + i]);
  });
  for (const double sum : total) expected.lse.push_back(std::log(sum));
  return expected;
}

inline ExpectedBackward naive_attention_backward(const AttentionCase& c, const AttentionValues& x, double scale) {
  ExpectedBackward expected{Sums(x.q.size()), Sums(x.k.size()), Sums(x.v.size())};
  const size_t n = static_cast<size_t>(c.head_dim);
  for_each_pair(c, [&](int64_t query, int64_t head, int64_t key, int64_t kv_head) {
    const int64_t row = query * c.heads + head, kv_row = key * c.kv_heads + kv_head;
    const size_t at = static_cast<size_t>(row) * n, kv_at = static_cast<size_t>(kv_row) * n;
    const double score = dot(x.q, row, x.k, kv_row, c.head_dim).value * scale;
    const double p = std::exp(score - x.lse[static_cast<size_t>(row)]);
    const Sum dp = dot(x.d_o, row, x.v, kv_row, c.head_dim), delta = dot(x.d_o, row, x.o, row, c.head_dim);
    const double ds = p * (dp.value - delta.value) * scale;
    const double ds_magnitude = p * (dp.magnitude + delta.magnitude) * scale;
    for (size_t i = 0; i < n; ++i) {
      expected.dq[at + i].add(ds * x.k[kv_at + i], ds_magnitude * std::abs(x.k[kv_at + i]));
      expected.dk[kv_at + i].add(ds * x.q[at + i], ds_magnitude * std::abs(x.q[at + i]));
      expected.dv[kv_at + i].add(p * x.d_o[at + i]);
    }
  });
  return expected;
}

}  // namespace tests
