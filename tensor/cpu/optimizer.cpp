#include <cmath>
#include <utility>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/threads.h"

namespace tensor::cpu {

namespace {

/// The step's constants, computed in fp64 and rounded once.
template <class T>
struct AdamWConstants {
  explicit AdamWConstants(const AdamW& a)
      : beta1(static_cast<T>(a.beta1)),
        beta2(static_cast<T>(a.beta2)),
        one_minus_beta1(static_cast<T>(1 - a.beta1)),
        one_minus_beta2(static_cast<T>(1 - a.beta2)),
        grad_scale(static_cast<T>(a.grad_scale)),
        decay(static_cast<T>(1 - a.lr * a.weight_decay)),
        step_size(static_cast<T>(a.lr / (1 - std::pow(a.beta1, static_cast<double>(a.step))))),
        inverse_correction2(static_cast<T>(1 / std::sqrt(1 - std::pow(a.beta2, static_cast<double>(a.step))))),
        eps(static_cast<T>(a.eps)) {}

  T beta1, beta2, one_minus_beta1, one_minus_beta2, grad_scale;
  T decay;                // of the parameter
  T step_size;            // lr / (1 - beta1^step)
  T inverse_correction2;  // 1 / sqrt(1 - beta2^step)
  T eps;
};

template <class T>
struct AdamWState {
  const T* grad;
  T *master, *exp_avg, *exp_avg_sq;
};

/// What is written beside the master: nothing.
struct NoValue {
  template <class T>
  void write(int64_t, T) const {}
};

template <class V>
struct RoundedValue {
  V* value;
  template <class T>
  void write(int64_t i, T master) const {
    store(value[i], static_cast<compute_t<V>>(master));
  }
};

template <class T, class Value>
void update(const AdamWConstants<T>& c, const AdamWState<T>& s, const Value& value, int64_t begin, int64_t end) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const T g = s.grad[i] * c.grad_scale;
    const T m = c.beta1 * s.exp_avg[i] + c.one_minus_beta1 * g;
    const T v = c.beta2 * s.exp_avg_sq[i] + c.one_minus_beta2 * g * g;
    const T p = s.master[i] * c.decay - c.step_size * m / (std::sqrt(v) * c.inverse_correction2 + c.eps);
    s.exp_avg[i] = m;
    s.exp_avg_sq[i] = v;
    s.master[i] = p;
    value.write(i, p);
  }
}

}  // namespace

void CpuOps::adamw(const AdamW& adamw, const Tensor& grad, Tensor& master, Tensor& exp_avg, Tensor& exp_avg_sq,
                   Tensor& value) {
  const int64_t n = master.numel();
  for (const Tensor* x : {&grad, &std::as_const(master), &std::as_const(exp_avg), &std::as_const(exp_avg_sq)}) {
    CHECK(x->numel() == n && x->is_contiguous(), "flat buffers hold {} elements each, not {}", n, x->numel());
  }
  CHECK(!value || (value.numel() == n && value.is_contiguous()), "value is a flat buffer of {} elements", n);
  CHECK(adamw.step >= 1, "optimizer step {} counts from 1", adamw.step);
  const auto run = [&]<class T>(const auto& target) {
    const AdamWConstants<T> constants(adamw);
    const AdamWState<T> state{grad.data<T>(), master.data<T>(), exp_avg.data<T>(), exp_avg_sq.data<T>()};
    parallel_for(n, kElementsPerThread,
                 [&](int64_t begin, int64_t end) { update(constants, state, target, begin, end); });
  };
  const auto run_with_value = [&]<class T>() {
    if (!value) return run.template operator()<T>(NoValue{});
    dispatch(value.dtype(), [&]<class V>() { run.template operator()<T>(RoundedValue<V>{value.data<V>()}); });
  };
  CHECK(master.dtype() != Dtype::bf16, "optimizer state is kept in fp32 or fp64");
  master.dtype() == Dtype::fp64 ? run_with_value.operator()<double>() : run_with_value.operator()<float>();
}

}  // namespace tensor::cpu
