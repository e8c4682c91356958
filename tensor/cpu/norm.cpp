#include <algorithm>
#include <cmath>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/rows.h"
#include "tensor/cpu/threads.h"

namespace tensor::cpu {

namespace {

template <class C>
struct RowStats {
  C mean;
  C inverse_deviation;
};

/// Two passes over a row that is in cache: the variance of deviations does not cancel.
template <class C, class T>
RowStats<C> measure(const Norm& norm, const T* x, int64_t n) {
  C mean = 0;
  if (norm.kind == NormKind::layer_norm) {
#pragma omp simd reduction(+ : mean)
    for (int64_t i = 0; i < n; ++i) mean += load(x[i]);
    mean /= static_cast<C>(n);
  }
  C squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < n; ++i) {
    const C deviation = load(x[i]) - mean;
    squares += deviation * deviation;
  }
  return {mean, 1 / std::sqrt(squares / static_cast<C>(n) + static_cast<C>(norm.eps))};
}

template <class C, class T>
void apply(const RowStats<C>& stats, const T* x, const T* weight, const T* bias, T* y, int64_t n) {
  const C mean = stats.mean, scale = stats.inverse_deviation;
  if (bias) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const C normal = (load(x[i]) - mean) * scale;
      store(y[i], normal * load(weight[i]) + load(bias[i]));
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const C normal = (load(x[i]) - mean) * scale;
      store(y[i], normal * load(weight[i]));
    }
  }
}

template <class C, class T>
void add_rows(const T* a, const T* b, T* sum, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(sum[i], load(a[i]) + load(b[i]));
}

template <class T>
const T* data_or_null(const Tensor& x) {
  return x ? x.data<T>() : nullptr;
}

/// y = norm(x); with a residual, sum = x + residual first (rounded to T, as the backward pass will see it).
template <class T>
void norm_forward(const Norm& norm, const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                  const Tensor& sum, const Tensor& y, const Tensor& stats) {
  using C = compute_t<T>;
  const Rows<const T> x_rows(x), residual_rows(residual ? residual : x);
  const Rows<T> sum_rows(sum ? sum : y), y_rows(y);
  const Rows<C> stats_rows(stats);
  const T* const w = weight.data<T>();
  const T* const b = data_or_null<T>(bias);
  const bool has_residual = static_cast<bool>(residual);
  const int64_t n = x_rows.dim();
  parallel_for_rows(x_rows.count(), n, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* input = x_rows[row];
      if (has_residual) {
        add_rows<C>(input, residual_rows[row], sum_rows[row], n);
        input = sum_rows[row];
      }
      const RowStats<C> measured = measure<C>(norm, input, n);
      apply(measured, input, w, b, y_rows[row], n);
      stats_rows[row][0] = measured.mean;
      stats_rows[row][1] = measured.inverse_deviation;
    }
  });
}

/// With g = dy * weight and u = (x - mean) / deviation: dx = (g - mean(g) - u * mean(g * u)) / deviation, where RMSNorm
/// has no mean(g).
template <class C, class T>
void backward_row(const Norm& norm, const T* dy, const T* x, const T* weight, const C* stats, T* dx, int64_t n,
                  Write write) {
  const C mean = stats[0], scale = stats[1];
  C mean_g = 0, mean_gu = 0;
#pragma omp simd reduction(+ : mean_g, mean_gu)
  for (int64_t i = 0; i < n; ++i) {
    const C g = load(dy[i]) * load(weight[i]);
    mean_g += g;
    mean_gu += g * ((load(x[i]) - mean) * scale);
  }
  mean_g = norm.kind == NormKind::layer_norm ? mean_g / static_cast<C>(n) : 0;
  mean_gu /= static_cast<C>(n);
  const auto gradient = [=](int64_t i) {
    const C u = (load(x[i]) - mean) * scale;
    return (load(dy[i]) * load(weight[i]) - mean_g - u * mean_gu) * scale;
  };
  if (write == Write::overwrite) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) store(dx[i], gradient(i));
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) store(dx[i], load(dx[i]) + gradient(i));
  }
}

// Weight gradients are summed over blocks of rows, and then over the blocks in order: the result depends on the shape
// alone, never on the number of threads.
constexpr int64_t kRowsPerBlock = 64;

/// partial [2, dim]: sums of dy * u and of dy over a block of rows.
template <class C, class T>
void sum_block(const Rows<const T>& dy, const Rows<const T>& x, const Rows<const C>& stats, int64_t begin, int64_t end,
               C* partial) {
  const int64_t n = x.dim();
  std::fill(partial, partial + 2 * n, C{0});
  for (int64_t row = begin; row < end; ++row) {
    const T *dy_row = dy[row], *x_row = x[row];
    const C mean = stats[row][0], scale = stats[row][1];
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const C g = load(dy_row[i]);
      partial[i] += g * ((load(x_row[i]) - mean) * scale);
      partial[n + i] += g;
    }
  }
}

/// Adds all blocks [2, dim] to the first, in order. No blocks: zeros.
template <class C>
void join_blocks(C* partials, int64_t num_blocks, int64_t dim) {
  if (num_blocks == 0) std::fill(partials, partials + 2 * dim, C{0});
  for (int64_t block = 1; block < num_blocks; ++block) {
    const C* const addend = partials + block * 2 * dim;
#pragma omp simd
    for (int64_t i = 0; i < 2 * dim; ++i) partials[i] += addend[i];
  }
}

template <class C>
void write_gradient(const C* sum, Tensor& gradient, Write write) {
  if (!gradient) return;
  dispatch(gradient.dtype(), [&]<class G>() {
    using Computed = compute_t<G>;
    G* const out = gradient.data<G>();
    for (int64_t i = 0; i < gradient.numel(); ++i) {
      const Computed before = write == Write::accumulate ? load(out[i]) : Computed{0};
      store(out[i], before + static_cast<Computed>(sum[i]));
    }
  });
}

}  // namespace

void CpuOps::norm(const Norm& norm, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y,
                  Tensor& stats) {
  dispatch(x.dtype(), [&]<class T>() { norm_forward<T>(norm, x, {}, weight, bias, {}, y, stats); });
}

void CpuOps::add_norm(const Norm& norm, const Tensor& x, const Tensor& residual, const Tensor& weight,
                      const Tensor& bias, Tensor& sum, Tensor& y, Tensor& stats) {
  dispatch(x.dtype(), [&]<class T>() { norm_forward<T>(norm, x, residual, weight, bias, sum, y, stats); });
}

void CpuOps::norm_backward_input(const Norm& norm, const Tensor& dy, const Tensor& x, const Tensor& weight,
                                 const Tensor& stats, Tensor& dx, Write write) {
  dispatch(x.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const Rows<const T> dy_rows(dy), x_rows(x);
    const Rows<const C> stats_rows(stats);
    const Rows<T> dx_rows(dx);
    const T* const w = weight.data<T>();
    parallel_for_rows(x_rows.count(), x_rows.dim(), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        backward_row(norm, dy_rows[row], x_rows[row], w, stats_rows[row], dx_rows[row], x_rows.dim(), write);
      }
    });
  });
}

void CpuOps::norm_backward_weight(const Norm&, const Tensor& dy, const Tensor& x, const Tensor& stats, Tensor& dweight,
                                  Tensor& dbias, Write write) {
  dispatch(x.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const Rows<const T> dy_rows(dy), x_rows(x);
    const Rows<const C> stats_rows(stats);
    const int64_t num_rows = x_rows.count(), dim = x_rows.dim();
    const int64_t num_blocks = (num_rows + kRowsPerBlock - 1) / kRowsPerBlock;
    Tensor partials =
        device().allocate({std::max<int64_t>(1, num_blocks), 2, dim}, dtype_of<C>, MemoryCategory::workspace);
    C* const sums = partials.data<C>();
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < num_blocks; ++block) {
      const int64_t begin = block * kRowsPerBlock, end = std::min(begin + kRowsPerBlock, num_rows);
      sum_block<C, T>(dy_rows, x_rows, stats_rows, begin, end, sums + block * 2 * dim);
    }
    join_blocks(sums, num_blocks, dim);
    write_gradient(sums, dweight, write);
    write_gradient(sums + dim, dbias, write);
  });
}

}  // namespace tensor::cpu
