/// A router's rows are short (one number per expert) and few: plain loops, in the accumulator's dtype.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/threads.h"

namespace tensor::cpu {

namespace {

/// acc is fp32 or fp64.
template <class Body>
void dispatch_acc(Dtype dtype, Body&& body) {
  CHECK(dtype != Dtype::bf16, "a router computes in fp32 or fp64");
  dtype == Dtype::fp64 ? body.template operator()<double>() : body.template operator()<float>();
}

template <class T>
T log_sum_exp(const T* logits, int64_t n) {
  const T most = *std::max_element(logits, logits + n);
  T sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += std::exp(logits[e] - most);
  return most + std::log(sum);
}

/// softmax or sigmoid of a row.
template <class T>
void score(RouterScore kind, const T* logits, T* scores, int64_t n) {
  if (kind == RouterScore::sigmoid) {
    for (int64_t e = 0; e < n; ++e) scores[e] = 1 / (1 + std::exp(-logits[e]));
    return;
  }
  const T lse = log_sum_exp(logits, n);
  for (int64_t e = 0; e < n; ++e) scores[e] = std::exp(logits[e] - lse);
}

/// Divisor of a sum of scores: scores so small that they sum to 0 stay 0.
template <class T>
T divisor(T sum) {
  return std::max(sum, std::numeric_limits<T>::min());
}

/// The `count` best of `values`, best first; of equal ones the first.
template <class T>
void best_of(const std::vector<T>& values, int64_t count, std::vector<int32_t>& order) {
  order.resize(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int32_t a, int32_t b) {
    const T left = values[static_cast<size_t>(a)], right = values[static_cast<size_t>(b)];
    return left > right || (left == right && a < b);
  });
}

/// Chooses the experts of one row after another; keeps its buffers.
template <class T>
class Chooser {
 public:
  Chooser(const Router& router, int64_t num_experts)
      : router_(router), ranked_(static_cast<size_t>(num_experts)), scores_(static_cast<size_t>(num_experts)) {}

  void choose(const T* logits, const T* bias, int32_t* ids, T* weights) {
    score(router_.score, logits, scores_.data(), std::ssize(scores_));
    for (size_t e = 0; e < scores_.size(); ++e) ranked_[e] = scores_[e] + (bias ? bias[e] : 0);
    if (router_.top_k_groups < router_.num_groups) leave_best_groups();
    best_of(ranked_, router_.top_k, order_);
    T sum = 0;
    for (int64_t k = 0; k < router_.top_k; ++k) {
      ids[k] = order_[static_cast<size_t>(k)];
      weights[k] = scores_[static_cast<size_t>(ids[k])];
      sum += weights[k];
    }
    const T scale = static_cast<T>(router_.scaling) / (router_.normalize ? divisor(sum) : 1);
    for (int64_t k = 0; k < router_.top_k; ++k) weights[k] *= scale;
  }

 private:
  void leave_best_groups() {
    const auto num_groups = static_cast<size_t>(router_.num_groups), size = ranked_.size() / num_groups;
    groups_.resize(num_groups);
    for (size_t g = 0; g < num_groups; ++g) {
      const auto begin = ranked_.begin() + static_cast<std::ptrdiff_t>(g * size);
      two_.assign(begin, begin + static_cast<std::ptrdiff_t>(size));
      std::partial_sort(two_.begin(), two_.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(2, size)), two_.end(),
                        std::greater<T>());
      groups_[g] = size == 1 ? two_[0] : two_[0] + two_[1];
    }
    best_of(groups_, router_.top_k_groups, order_);
    for (auto g = static_cast<size_t>(router_.top_k_groups); g < num_groups; ++g) {
      const auto begin = ranked_.begin() + order_[g] * static_cast<std::ptrdiff_t>(size);
      std::fill_n(begin, size, -std::numeric_limits<T>::infinity());
    }
  }

  const Router& router_;
  std::vector<T> ranked_, scores_, groups_, two_;
  std::vector<int32_t> order_;
};

/// dscores of a row becomes dlogits, in place.
template <class T>
void score_backward(RouterScore kind, const T* scores, T* d, int64_t n) {
  if (kind == RouterScore::sigmoid) {
    for (int64_t e = 0; e < n; ++e) d[e] *= scores[e] * (1 - scores[e]);
    return;
  }
  T dot = 0;
  for (int64_t e = 0; e < n; ++e) dot += d[e] * scores[e];
  for (int64_t e = 0; e < n; ++e) d[e] = scores[e] * (d[e] - dot);
}

/// Adds the gradient of weights [k] to that of the scores.
template <class T>
void weights_backward(const Router& router, const T* scores, const int32_t* ids, const T* dweights, T* dscores) {
  T sum = 1, dot = 0;  // a single choice has the share 1 exactly, and so the gradient 0
  if (router.normalize) {
    sum = 0;
    for (int64_t k = 0; k < router.top_k; ++k) sum += scores[ids[k]];
    sum = divisor(sum);
    for (int64_t k = 0; k < router.top_k; ++k) dot += dweights[k] * (scores[ids[k]] / sum);
  }
  const T scale = static_cast<T>(router.scaling) / sum;
  for (int64_t k = 0; k < router.top_k; ++k) dscores[ids[k]] += scale * (dweights[k] - dot);
}

/// Adds the gradient scale * counts [n] of the row's shares scores / sum(scores) to that of the scores.
template <class T>
void shares_backward(const T* scores, const T* counts, T scale, T* dscores, int64_t n) {
  const T sum = divisor(std::accumulate(scores, scores + n, T{0}));
  T dot = 0;
  for (int64_t e = 0; e < n; ++e) dot += counts[e] * scores[e] / sum;
  for (int64_t e = 0; e < n; ++e) dscores[e] += scale * (counts[e] - dot) / sum;
}

/// Adds the gradient of scale * lse^2.
template <class T>
void z_backward(const T* logits, T scale, T* dlogits, int64_t n) {
  const T lse = log_sum_exp(logits, n);
  for (int64_t e = 0; e < n; ++e) dlogits[e] += 2 * scale * lse * std::exp(logits[e] - lse);
}

}  // namespace

void CpuOps::router(const Router& router, const Tensor& logits, const Tensor& bias, Tensor& ids, Tensor& weights) {
  const int64_t rows = logits.dim(0), experts = logits.dim(1);
  CHECK(ids.dim(0) == rows && weights.dim(0) == rows && ids.dim(1) == router.top_k && router.top_k <= experts,
        "{} rows choose {} of {} experts", rows, router.top_k, experts);
  dispatch_acc(logits.dtype(), [&]<class T>() {
    parallel_for_rows(rows, 8 * experts, [&](int64_t begin, int64_t end) {
      Chooser<T> chooser(router, experts);
      for (int64_t row = begin; row < end; ++row) {
        chooser.choose(logits.data<T>() + row * experts, bias ? bias.data<T>() : nullptr,
                       ids.data<int32_t>() + row * router.top_k, weights.data<T>() + row * router.top_k);
      }
    });
  });
}

void CpuOps::router_sums(const Router& router, const Tensor& logits, const Tensor& ids, const SequenceRows& rows,
                         Tensor& sums) {
  const int64_t experts = logits.dim(1), per_kind = rows.num_sequences * experts;
  CHECK(sums.numel() == 2 * per_kind, "{} holds two sums of {} sequences", sums.shape().str(), rows.num_sequences);
  device().zero(sums);
  dispatch_acc(logits.dtype(), [&]<class T>() {
    std::vector<T> scores(static_cast<size_t>(experts));
    for (int64_t row = 0; row < logits.dim(0); ++row) {
      score(router.score, logits.data<T>() + row * experts, scores.data(), experts);
      const T total = divisor(std::accumulate(scores.begin(), scores.end(), T{0}));
      T* counts = sums.data<T>() + rows.sequence_of(row) * experts;
      T* shares = counts + per_kind;
      for (int64_t k = 0; k < router.top_k; ++k) counts[ids.data<int32_t>()[row * router.top_k + k]] += 1;
      for (int64_t e = 0; e < experts; ++e) shares[e] += scores[static_cast<size_t>(e)] / total;
    }
  });
}

double CpuOps::router_z(const Tensor& logits) {
  double sum = 0;
  dispatch_acc(logits.dtype(), [&]<class T>() {
    for (int64_t row = 0; row < logits.dim(0); ++row) {
      const double lse = log_sum_exp(logits.data<T>() + row * logits.dim(1), logits.dim(1));
      sum += lse * lse;
    }
  });
  return sum;
}

void CpuOps::router_backward(const Router& router, const Tensor& logits, const Tensor& ids, const Tensor& dweights,
                             const RouterLosses& losses, const SequenceRows& rows, Tensor& dlogits) {
  const int64_t experts = logits.dim(1);
  CHECK(dlogits.shape() == logits.shape() && dweights.shape() == ids.shape(), "{} gets its gradient, not {}",
        logits.shape().str(), dlogits.shape().str());
  dispatch_acc(logits.dtype(), [&]<class T>() {
    parallel_for_rows(logits.dim(0), 8 * experts, [&](int64_t begin, int64_t end) {
      std::vector<T> scores(static_cast<size_t>(experts));
      for (int64_t row = begin; row < end; ++row) {
        const T* of_row = logits.data<T>() + row * experts;
        T* d = dlogits.data<T>() + row * experts;
        score(router.score, of_row, scores.data(), experts);
        std::fill_n(d, experts, T{0});
        weights_backward(router, scores.data(), ids.data<int32_t>() + row * router.top_k,
                         dweights.data<T>() + row * router.top_k, d);
        if (losses.counts) {
          const T* counts = losses.counts.data<T>() + rows.sequence_of(row) * experts;
          shares_backward(scores.data(), counts, static_cast<T>(losses.scale_of_counts), d, experts);
        }
        score_backward(router.score, scores.data(), d, experts);
        if (losses.scale_of_z != 0) z_backward(of_row, static_cast<T>(losses.scale_of_z), d, experts);
      }
    });
  });
}

void CpuOps::balance(double rate, double mean, const Tensor& counts, Tensor& master, Tensor& value) {
  CHECK(counts.numel() == master.numel(), "{} counts move {} biases", counts.numel(), master.numel());
  dispatch_acc(master.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < master.numel(); ++i) {
      const double gap = mean - static_cast<double>(counts.data<T>()[i]);
      master.data<T>()[i] += static_cast<T>(rate * (gap > 0 ? 1 : gap < 0 ? -1 : 0));
    }
  });
  if (value) cast(master, value);
}

}  // namespace tensor::cpu
