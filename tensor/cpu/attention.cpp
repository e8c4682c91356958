#include <cmath>
#include <limits>
#include <vector>

#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"

namespace tensor::cpu {

namespace {

template <class T>
compute_t<T> dot(const T* a, const T* b, int64_t n) {
  using C = compute_t<T>;
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<C>(a[i]) * static_cast<C>(b[i]);
  return sum;
}

template <class T>
T* at(const Tensor& x, int64_t row, int64_t head) {
  return static_cast<T*>(x.raw()) + row * x.row_stride() + head * x.dim(2);
}

bool sees(const AttentionMask& mask, int64_t query, int64_t key) {
  const int32_t position = mask.key_positions.data<int32_t>()[key];
  return mask.first_visible.data<int32_t>()[query] <= position &&
         position <= mask.query_positions.data<int32_t>()[query];
}

}  // namespace

void CpuOps::attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, double scale,
                       Tensor& o, Tensor& lse) {
  dispatch(q.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const int64_t head_dim = q.dim(2), heads = q.dim(1), group = heads / k.dim(1);
    const int64_t num_queries = q.dim(0) / mask.num_sequences, num_keys = k.dim(0) / mask.num_sequences;
#pragma omp parallel for schedule(static)
    for (int64_t query = 0; query < q.dim(0); ++query) {
      const int64_t first_key = query / num_queries * num_keys;
      for (int64_t head = 0; head < heads; ++head) {
        C max = -std::numeric_limits<C>::infinity(), total = 0;
        std::vector<C> out(static_cast<size_t>(head_dim));
        for (int64_t key = first_key; key < first_key + num_keys; ++key) {
          if (!sees(mask, query, key)) continue;
          const C score = static_cast<C>(scale) * dot(at<T>(q, query, head), at<T>(k, key, head / group), head_dim);
          const C new_max = std::max(max, score), shrink = std::exp(max - new_max), p = std::exp(score - new_max);
          max = new_max;
          total = total * shrink + p;
          for (int64_t c = 0; c < head_dim; ++c) {
            C& sum = out[static_cast<size_t>(c)];
            sum = sum * shrink + p * static_cast<C>(at<T>(v, key, head / group)[c]);
          }
        }
        for (int64_t c = 0; c < head_dim; ++c) {
          at<T>(o, query, head)[c] = static_cast<T>(total == 0 ? 0 : out[static_cast<size_t>(c)] / total);
        }
        lse.data<C>()[query * heads + head] = max + std::log(total);
      }
    }
  });
}

void CpuOps::attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o, const Tensor& lse,
                                const Tensor& d_o, const AttentionMask& mask, double scale, Tensor& dq, Tensor& dk,
                                Tensor& dv) {
  dispatch(q.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const int64_t head_dim = q.dim(2), heads = q.dim(1), group = heads / k.dim(1);
    const int64_t num_queries = q.dim(0) / mask.num_sequences, num_keys = k.dim(0) / mask.num_sequences;
    std::vector<C> gq(static_cast<size_t>(q.numel())), gk(static_cast<size_t>(k.numel())), gv(gk.size());
#pragma omp parallel for schedule(static)
    for (int64_t kv_head = 0; kv_head < k.dim(1); ++kv_head) {
      for (int64_t query = 0; query < q.dim(0); ++query) {
        const int64_t first_key = query / num_queries * num_keys;
        for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          const C delta = dot(at<T>(o, query, head), at<T>(d_o, query, head), head_dim);
          for (int64_t key = first_key; key < first_key + num_keys; ++key) {
            if (!sees(mask, query, key)) continue;
            const T *q_row = at<T>(q, query, head), *k_row = at<T>(k, key, kv_head), *d_o_row = at<T>(d_o, query, head);
            const C score = static_cast<C>(scale) * dot(q_row, k_row, head_dim);
            const C p = std::exp(score - lse.data<C>()[query * heads + head]);
            const C ds = p * (dot(d_o_row, at<T>(v, key, kv_head), head_dim) - delta) * static_cast<C>(scale);
            for (int64_t c = 0; c < head_dim; ++c) {
              const size_t kv_at = static_cast<size_t>((key * k.dim(1) + kv_head) * head_dim + c);
              gq[static_cast<size_t>((query * heads + head) * head_dim + c)] += ds * static_cast<C>(k_row[c]);
              gk[kv_at] += ds * static_cast<C>(q_row[c]);
              gv[kv_at] += p * static_cast<C>(d_o_row[c]);
            }
          }
        }
      }
    }
    const auto store = [&](const std::vector<C>& from, Tensor& to) {
      const size_t row_numel = static_cast<size_t>(to.shape().row_numel());
      for (size_t i = 0; i < from.size(); ++i) {
        at<T>(to, static_cast<int64_t>(i / row_numel), 0)[i % row_numel] = static_cast<T>(from[i]);
      }
    };
    store(gq, dq);
    store(gk, dk);
    store(gv, dv);
  });
}

}  // namespace tensor::cpu
