#include <cmath>
#include <limits>
#include <utility>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/threads.h"
#include "tensor/cpu/vector_math.h"

namespace tensor::cpu {

namespace {

constexpr int64_t kLanes = 64;  // independent sums: enough to hide latency, and short ones round less

template <class T>
T row_maximum(const T* x, int64_t n) {
  T lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<T>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  }
  for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  return *std::max_element(lanes, lanes + kLanes);
}

/// x becomes exp(x - max); returns the sum.
template <class T>
T exponentiate_row(T* x, int64_t n, T max) {
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const T e = math::exp_of_nonpositive(x[i + lane] - max);
      x[i + lane] = e;
      lanes[lane] += e;
    }
  }
  for (; i < n; ++i) lanes[0] += x[i] = math::exp_of_nonpositive(x[i] - max);
  T sum = 0;
  for (const T lane : lanes) sum += lane;
  return sum;
}

template <class T, class To>
void scale_row(const T* x, To* y, int64_t n, T factor) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(y[i], static_cast<compute_t<To>>(x[i] * factor));
}

/// The column of this rank that holds the target, or -1: another rank's, or an ignored row.
int64_t own_column(int32_t target, int64_t first_column, int64_t num_columns) {
  const int64_t column = target - first_column;
  return target >= 0 && 0 <= column && column < num_columns ? column : -1;
}

/// Calls body.operator()<T>() with the type that logits and their statistics share.
template <class Body>
void dispatch_accumulator(Dtype dtype, const Body& body) {
  if (dtype == Dtype::fp64) return body.template operator()<double>();
  CHECK(dtype == Dtype::fp32, "logits are kept in fp32 or fp64, not {}", to_string(dtype));
  body.template operator()<float>();
}

void check_rows(const Tensor& logits, const Tensor& per_row) {
  CHECK(per_row.numel() == logits.dim(0), "logits {} have one value for each row, not {}", logits.shape().str(),
        per_row.numel());
}

}  // namespace

void CpuOps::cross_entropy_max(const Tensor& logits, Tensor& row_max) {
  check_rows(logits, row_max);
  const int64_t columns = logits.dim(1);
  dispatch_accumulator(logits.dtype(), [&]<class T>() {
    const T* x = logits.data<T>();
    T* max = row_max.data<T>();
    parallel_for_rows(logits.dim(0), columns, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) max[row] = row_maximum(x + row * logits.row_stride(), columns);
    });
  });
}

void CpuOps::cross_entropy_exp(Tensor& logits, const Tensor& row_max, const Tensor& targets, int64_t first_column,
                               Tensor& sum_exp, Tensor& target_logit) {
  for (const Tensor* per_row : {&row_max, &targets, &std::as_const(sum_exp), &std::as_const(target_logit)}) {
    check_rows(logits, *per_row);
  }
  const int64_t columns = logits.dim(1);
  const int32_t* target = targets.data<int32_t>();
  dispatch_accumulator(logits.dtype(), [&]<class T>() {
    T *logit = logits.data<T>(), *sum = sum_exp.data<T>(), *own_logit = target_logit.data<T>();
    const T* max = row_max.data<T>();
    parallel_for_rows(logits.dim(0), columns, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        T* x = logit + row * logits.row_stride();
        const int64_t column = own_column(target[row], first_column, columns);
        own_logit[row] = column >= 0 ? x[column] - max[row] : T{0};
        sum[row] = exponentiate_row(x, columns, max[row]);
      }
    });
  });
}

void CpuOps::cross_entropy_gradient(const Tensor& exp_logits, const Tensor& sum_exp, const Tensor& targets,
                                    int64_t first_column, double scale, Tensor& dlogits) {
  check_rows(exp_logits, sum_exp);
  check_rows(exp_logits, targets);
  CHECK(dlogits.shape() == exp_logits.shape(), "dlogits has the shape of logits {}", exp_logits.shape().str());
  const int64_t columns = exp_logits.dim(1);
  const int32_t* target = targets.data<int32_t>();
  dispatch_accumulator(exp_logits.dtype(), [&]<class T>() {
    dispatch(dlogits.dtype(), [&]<class To>() {
      const T *exps = exp_logits.data<T>(), *sum = sum_exp.data<T>();
      To* gradient = dlogits.data<To>();
      parallel_for_rows(exp_logits.dim(0), columns, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const T* e = exps + row * exp_logits.row_stride();
          To* d = gradient + row * dlogits.row_stride();
          const int64_t column = own_column(target[row], first_column, columns);
          const T factor = static_cast<T>(scale) / sum[row];
          const T at_target = column >= 0 ? e[column] * factor - static_cast<T>(scale) : T{0};
          if (target[row] < 0) {
            std::fill_n(d, columns, To{});
          } else {
            scale_row(e, d, columns, factor);
          }
          if (column >= 0) store(d[column], static_cast<compute_t<To>>(at_target));
        }
      });
    });
  });
}

double CpuOps::cross_entropy_loss(const Tensor& sum_exp, const Tensor& target_logit, const Tensor& targets) {
  const int32_t* target = targets.data<int32_t>();
  double loss = 0;
  dispatch_accumulator(sum_exp.dtype(), [&]<class T>() {
    const T *sum = sum_exp.data<T>(), *logit = target_logit.data<T>();
    for (int64_t row = 0; row < targets.numel(); ++row) {
      if (target[row] >= 0) loss += std::log(static_cast<double>(sum[row])) - static_cast<double>(logit[row]);
    }
  });
  return loss;
}

}  // namespace tensor::cpu
