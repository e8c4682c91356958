#pragma once
/// The heads of one rank, and where they lie in a fused tensor [tokens, q | k | v] (or [tokens, q | k]), whose rows may
/// lie apart.

#include <cmath>

#include "tensor/tensor.h"

namespace model {

struct AttentionHeads {
  int64_t q = 0;
  int64_t kv = 0;  ///< of k, and as many of v
  int64_t head_dim = 0;

  int64_t q_width() const { return q * head_dim; }
  int64_t kv_width() const { return 2 * kv * head_dim; }
  int64_t fused_width() const { return q_width() + kv_width(); }
  double scale() const { return 1.0 / std::sqrt(static_cast<double>(head_dim)); }

  // Views [tokens, heads, head_dim].
  tensor::Tensor q_of(const tensor::Tensor& fused) const { return range_of(fused, 0, q); }
  tensor::Tensor k_of(const tensor::Tensor& fused) const { return range_of(fused, q, kv); }
  tensor::Tensor v_of(const tensor::Tensor& fused) const { return range_of(fused, q + kv, kv); }

  // Views [tokens, columns].
  tensor::Tensor q_columns(const tensor::Tensor& fused) const { return fused.columns(0, q_width()); }
  tensor::Tensor kv_columns(const tensor::Tensor& fused) const { return fused.columns(q_width(), fused_width()); }

  /// Heads [first, first + count) of x [tokens, heads * head_dim]: a view [tokens, count, head_dim].
  tensor::Tensor range_of(const tensor::Tensor& x, int64_t first, int64_t count) const {
    return x.columns(first * head_dim, (first + count) * head_dim).reshaped({x.dim(0), count, head_dim});
  }
};

/// The heads of keys and values alone: k_of and v_of a tensor [tokens, k | v].
inline AttentionHeads keys_alone(const AttentionHeads& heads) {
  return {.q = 0, .kv = heads.kv, .head_dim = heads.head_dim};
}

}  // namespace model
