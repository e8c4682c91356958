#include <algorithm>
#include <ctime>
#include <limits>

#include "tensor/cpu/cpu_device.h"

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
constexpr int kNumTries = 20;

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

/// Processor time this thread has used: what other jobs take from the core does not count.
double thread_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// FLOP/s of the calling thread: the best of a few tries.
template <class T>
double measure_thread() {
  constexpr double kFlopsPerIteration = 2.0 * kNumSums * (kVectorBytes / sizeof(T));
  constexpr int64_t kIterations = 100'000;  // 0.2 to 0.7 ms
  T sink = 0;
  double seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kNumTries; ++i) {
    const double start = thread_seconds();
    sink += multiply_add_loop<T>(kIterations);
    seconds = std::min(seconds, thread_seconds() - start);
  }
  asm volatile("" : : "m"(sink));
  return kFlopsPerIteration * kIterations / seconds;
}

/// All threads at once, as they share caches, power and perhaps cores.
template <class T>
double measure(int num_threads) {
  double flops = 0;
#pragma omp parallel num_threads(num_threads) reduction(+ : flops)
  flops += measure_thread<T>();
  return flops;
}

}  // namespace

double measure_peak_flops(Dtype dtype, int num_threads) {
  return dtype == Dtype::fp64 ? measure<double>(num_threads) : measure<float>(num_threads);
}

}  // namespace tensor::cpu
