#include <chrono>

#include "tensor/cpu/cpu_device.h"
#include "tensor/cpu/threads.h"

namespace tensor::cpu {

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

// Enough independent sums to hide the latency of a multiply-add (4 cycles, 2 a cycle); 16 registers hold them all.
constexpr int kNumSums = 10;
constexpr int kNumTries = 5;

/// Returns something that depends on every operation, so that none is dropped.
template <class T>
T multiply_add_loop(int64_t iterations) {
  typedef T Vector __attribute__((vector_size(kVectorBytes)));
  Vector sums[kNumSums];
  for (int i = 0; i < kNumSums; ++i) sums[i] = Vector{} + static_cast<T>(i);
  Vector factor = Vector{} + static_cast<T>(0.999), term = Vector{} + static_cast<T>(1e-3);
  asm volatile("" : "+m"(factor), "+m"(term));  // unknown to the compiler
  for (int64_t iteration = 0; iteration < iterations; ++iteration) {
#pragma GCC unroll 10
    for (int i = 0; i < kNumSums; ++i) sums[i] = sums[i] * factor + term;
  }
  for (int i = 1; i < kNumSums; ++i) sums[0] += sums[i];
  return sums[0][0];
}

template <class T>
double seconds_of_loop(int64_t iterations, int num_threads) {
  T sink = 0;
  const auto start = std::chrono::steady_clock::now();
#pragma omp parallel num_threads(num_threads) reduction(+ : sink)
  sink += multiply_add_loop<T>(iterations);
  asm volatile("" : : "m"(sink));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The best of a few tries: any other job on the cores only slows a try down.
template <class T>
double measure(int num_threads) {
  constexpr double kTrySeconds = 4e-3;
  constexpr int64_t kProbeIterations = 100'000;  // 0.2 to 0.4 ms; also starts the threads
  seconds_of_loop<T>(kProbeIterations, num_threads);
  const double probe = seconds_of_loop<T>(kProbeIterations, num_threads);
  const auto iterations = static_cast<int64_t>(kProbeIterations * std::clamp(kTrySeconds / probe, 0.1, 50.0));

  double best = probe / kProbeIterations;
  for (int i = 0; i < kNumTries; ++i) {
    best = std::min(best, seconds_of_loop<T>(iterations, num_threads) / static_cast<double>(iterations));
  }
  constexpr double kFlopsPerIteration = 2.0 * kNumSums * (kVectorBytes / sizeof(T));
  return kFlopsPerIteration * num_threads / best;
}

}  // namespace

double measure_peak_flops(Dtype dtype, int num_threads) {
  return dtype == Dtype::fp64 ? measure<double>(num_threads) : measure<float>(num_threads);
}

}  // namespace tensor::cpu
