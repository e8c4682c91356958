/// Compiled with -ffp-contract=off (tensor/CMakeLists.txt): a square is rounded to fp64 before it is split, in every
/// lane alike, and on other devices too.

#include "tensor/exact_sum.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/threads.h"

namespace tensor::cpu {

namespace {

constexpr int64_t kLanes = 32;
constexpr int64_t kBlock = 64 * 1024;  // a lane's counts stay below 2^40 * kBlock / kLanes = 2^51

/// Magnitudes as whole numbers: their order is that of the numbers, and NaN is above infinity.
template <class T>
struct Magnitude;
template <>
struct Magnitude<float> {
  using Bits = int32_t;
  static Bits of(float x) { return std::bit_cast<Bits>(x) & 0x7fff'ffff; }
  static double value(Bits bits) { return std::bit_cast<float>(bits); }
};
template <>
struct Magnitude<bfloat16> {
  using Bits = int16_t;
  static Bits of(bfloat16 x) { return static_cast<Bits>(x.bits & 0x7fff); }
  static double value(Bits bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
template <>
struct Magnitude<double> {
  using Bits = int64_t;
  static Bits of(double x) { return std::bit_cast<Bits>(x) & 0x7fff'ffff'ffff'ffff; }
  static double value(Bits bits) { return std::bit_cast<double>(bits); }
};

template <class T>
typename Magnitude<T>::Bits max_magnitude(const T* x, int64_t n) {
  typename Magnitude<T>::Bits largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, Magnitude<T>::of(x[i]));
  return largest;
}

/// Sums of the bits of (x + kCoarse) and (rest + kFine), modulo 2^64.
struct LaneSums {
  alignas(64) uint64_t coarse[kLanes] = {};
  alignas(64) uint64_t fine[kLanes] = {};

  template <class T>
  void add(const T* x, double scale) {
#pragma omp simd
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double scaled = static_cast<double>(load(x[lane])) * scale;
      const double square = scaled * scaled;
      const double rounded = square + SquareSplit::kCoarse;
      const double rest = square - (rounded - SquareSplit::kCoarse);
      coarse[lane] += std::bit_cast<uint64_t>(rounded);
      fine[lane] += std::bit_cast<uint64_t>(rest + SquareSplit::kFine);
    }
  }

  /// After `steps` calls of add(), in units of 2^-78.
  ExactSum::Int128 total(int64_t steps) const {
    constexpr int kShift = SquareSplit::kCoarseExponent - SquareSplit::kFineExponent;
    const auto own_bits = [&](double constant) {
      return std::bit_cast<uint64_t>(constant) * static_cast<uint64_t>(steps);
    };
    ExactSum::Int128 sum = 0;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto whole = static_cast<int64_t>(coarse[lane] - own_bits(SquareSplit::kCoarse));
      const auto part = static_cast<int64_t>(fine[lane] - own_bits(SquareSplit::kFine));
      sum += (static_cast<ExactSum::Int128>(whole) << kShift) + part;
    }
    return sum;
  }
};

/// At most kBlock elements. The last few join zeros, which count as nothing, in the same loop.
template <class T>
ExactSum::Int128 count_of_squares(const T* x, int64_t n, double scale) {
  LaneSums sums;
  const int64_t whole_steps = n / kLanes;
  for (int64_t step = 0; step < whole_steps; ++step) sums.add(x + step * kLanes, scale);
  if (n % kLanes == 0) return sums.total(whole_steps);
  T last[kLanes] = {};
  std::copy(x + whole_steps * kLanes, x + n, last);
  sums.add(last, scale);
  return sums.total(whole_steps + 1);
}

}  // namespace

double CpuOps::max_abs(const Tensor& x) {
  CHECK(x.is_contiguous(), "a flat buffer, unlike {}", x.shape().str());
  return dispatch(x.dtype(), [&]<class T>() {
    typename Magnitude<T>::Bits largest = 0;
    std::mutex mutex;
    parallel_for(x.numel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
      const auto own = max_magnitude(x.data<T>() + begin, end - begin);
      const std::lock_guard lock(mutex);
      largest = std::max(largest, own);
    });
    return Magnitude<T>::value(largest);
  });
}

ExactSum CpuOps::sum_of_squares(const Tensor& x, double max_abs) {
  CHECK(x.is_contiguous(), "a flat buffer, unlike {}", x.shape().str());
  ExactSum sum(max_abs);
  if (!sum.needs_elements()) return sum;
  dispatch(x.dtype(), [&]<class T>() {
    std::mutex mutex;
    parallel_for(x.numel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
      ExactSum::Int128 own = 0;
      for (int64_t i = begin; i < end; i += kBlock) {
        own += count_of_squares(x.data<T>() + i, std::min(kBlock, end - i), sum.scale());
      }
      const std::lock_guard lock(mutex);
      sum.add(own);
    });
  });
  return sum;
}

}  // namespace tensor::cpu
