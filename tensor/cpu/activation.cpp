#include <cmath>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/rows.h"
#include "tensor/cpu/threads.h"
#include "tensor/cpu/vector_math.h"

namespace tensor::cpu {

namespace {

template <class C>
struct ValueAndSlope {
  C value;
  C slope;
};

template <class C>
C sigmoid(C x) {
  const C e = math::exp_of_nonpositive(-std::abs(x));  // never overflows
  return (x < 0 ? e : 1) / (1 + e);
}

/// 0.5 x (1 + tanh(u)) = x * sigmoid(2u), u = sqrt(2 / pi) * (x + 0.044715 x^3).
struct GeluTanh {
  template <class C>
  static ValueAndSlope<C> at(C x) {
    constexpr C kScale = static_cast<C>(1.5957691216057307117597842397375);  // 2 sqrt(2 / pi)
    constexpr C kCubic = static_cast<C>(0.044715);
    const C s = sigmoid(kScale * (x + kCubic * x * x * x));
    return {x * s, s + x * s * (1 - s) * kScale * (1 + 3 * kCubic * x * x)};
  }
};

struct GeluErf {
  template <class C>
  static ValueAndSlope<C> at(C x) {
    constexpr C kInverseSqrt2 = static_cast<C>(0.70710678118654752440084436210485);
    constexpr C kInverseSqrt2Pi = static_cast<C>(0.39894228040143267793994605993438);
    const C cdf = static_cast<C>(0.5) * (1 + math::erf(x * kInverseSqrt2));
    const C pdf = kInverseSqrt2Pi * math::exp_of_nonpositive(static_cast<C>(-0.5) * x * x);
    return {x * cdf, cdf + x * pdf};
  }
};

struct ReluSquared {
  template <class C>
  static ValueAndSlope<C> at(C x) {
    const C positive = x < 0 ? 0 : x;  // NaN stays NaN
    return {positive * positive, 2 * positive};
  }
};

struct Silu {
  template <class C>
  static ValueAndSlope<C> at(C x) {
    const C s = sigmoid(x);
    return {x * s, s + x * s * (1 - s)};
  }
};

/// Calls body.operator()<F>() with the function of `kind`; gated kinds apply it to the gate.
template <class Body>
void dispatch_activation(Activation kind, Body&& body) {
  switch (kind) {
    case Activation::gelu_tanh:
    case Activation::geglu:
      return body.template operator()<GeluTanh>();
    case Activation::gelu_erf:
      return body.template operator()<GeluErf>();
    case Activation::relu_squared:
      return body.template operator()<ReluSquared>();
    case Activation::swiglu:
      return body.template operator()<Silu>();
  }
}

template <class F, class T>
void forward_row(const T* __restrict x, T* __restrict y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(y[i], F::at(load(x[i])).value);
}

template <class F, class T>
void forward_gated_row(const T* __restrict gate, const T* __restrict up, T* __restrict y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    store(y[i], F::at(load(gate[i])).value * load(up[i]));
  }
}

template <class F, class T>
void backward_row(const T* __restrict dy, const T* __restrict x, T* __restrict dx, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    store(dx[i], load(dy[i]) * F::at(load(x[i])).slope);
  }
}

/// x and dx are [gate | up], n wide each.
template <class F, class T>
void backward_gated_row(const T* __restrict dy, const T* __restrict x, T* __restrict dx, int64_t n) {
  using C = compute_t<T>;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const C g = load(dy[i]), up = load(x[n + i]);
    const ValueAndSlope<C> gate = F::at(load(x[i]));
    store(dx[i], g * up * gate.slope);
    store(dx[n + i], g * gate.value);
  }
}

}  // namespace

void CpuOps::activation(Activation kind, const Tensor& x, Tensor& y) {
  dispatch(x.dtype(), [&]<class T>() {
    dispatch_activation(kind, [&]<class F>() {
      const Rows<const T> in(x);
      const Rows<T> out(y);
      const int64_t n = out.dim();
      parallel_for_rows(out.count(), n, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          if (is_gated(kind)) {
            forward_gated_row<F>(in[row], in[row] + n, out[row], n);
          } else {
            forward_row<F>(in[row], out[row], n);
          }
        }
      });
    });
  });
}

void CpuOps::activation_backward(Activation kind, const Tensor& dy, const Tensor& x, Tensor& dx) {
  dispatch(x.dtype(), [&]<class T>() {
    dispatch_activation(kind, [&]<class F>() {
      const Rows<const T> dy_rows(dy), x_rows(x);
      const Rows<T> dx_rows(dx);
      const int64_t n = dy_rows.dim();
      parallel_for_rows(dy_rows.count(), n, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          if (is_gated(kind)) {
            backward_gated_row<F>(dy_rows[row], x_rows[row], dx_rows[row], n);
          } else {
            backward_row<F>(dy_rows[row], x_rows[row], dx_rows[row], n);
          }
        }
      });
    });
  });
}

}  // namespace tensor::cpu
