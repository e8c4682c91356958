/// The training speed that OpenBLAS's matrix products alone would allow for a GPT-2-shaped model.
///
/// Measures sgemm on every product of a step's linear layers and head, in the three layouts of training, with the
/// tokens of one micro-batch as the long side. All matmul FLOPs of a step (attention in full, though causal attention
/// needs half) at the rate of those products together give the bound. Prints one JSON object.
///
///   sgemm_bound NUM_LAYERS HIDDEN_SIZE SEQ_LEN BATCH_SIZE VOCAB_SIZE       threads: OMP_NUM_THREADS

#include <cblas.h>
#include <fmt/core.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

/// y [tokens, out] = x [tokens, in] * weight [out, in]^T, and how often a step has it.
struct LinearShape {
  int64_t out, in, count;
};

struct Measured {
  double seconds = 0;  ///< of all products of a step
  double flops = 0;
};

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Median of repeated calls; enough of them for 0.3 s, at least 5.
double median_seconds(const std::function<void()>& work) {
  work();  // touches the memory
  const double first = seconds_of(work);
  const int repeats = std::clamp(static_cast<int>(0.3 / first), 5, 1000);
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) times.push_back(seconds_of(work));
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[static_cast<size_t>(repeats / 2)];
}

/// Forward, gradient of the input, gradient of the weight: one product each, 2 * tokens * out * in FLOPs.
Measured measure(const LinearShape& shape, int64_t tokens) {
  const auto m = static_cast<blasint>(tokens), out = static_cast<blasint>(shape.out),
             in = static_cast<blasint>(shape.in);
  std::vector<float> x(static_cast<size_t>(tokens * shape.in), 0.5f), y(static_cast<size_t>(tokens * shape.out), 0.25f),
      weight(static_cast<size_t>(shape.out * shape.in), 0.125f);
  const double forward = median_seconds([&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, out, in, 1, x.data(), in, weight.data(), in, 0, y.data(),
                out);
  });
  const double backward_input = median_seconds([&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, in, out, 1e-6f, y.data(), out, weight.data(), in, 0,
                x.data(), in);
  });
  const double backward_weight = median_seconds([&] {
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, m, 1e-6f, y.data(), out, x.data(), in, 0,
                weight.data(), in);
  });
  const auto count = static_cast<double>(shape.count);
  return {.seconds = count * (forward + backward_input + backward_weight),
          .flops = count * 6 * static_cast<double>(tokens) * static_cast<double>(shape.out * shape.in)};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr, "usage: sgemm_bound NUM_LAYERS HIDDEN_SIZE SEQ_LEN BATCH_SIZE VOCAB_SIZE\n");
    return 2;
  }
  const int64_t num_layers = std::atoll(argv[1]), hidden = std::atoll(argv[2]), seq_len = std::atoll(argv[3]);
  const int64_t tokens = seq_len * std::atoll(argv[4]), vocab = std::atoll(argv[5]);
  const LinearShape shapes[] = {{3 * hidden, hidden, num_layers},  // qkv
                                {hidden, hidden, num_layers},      // attention output
                                {4 * hidden, hidden, num_layers},  // ffn up
                                {hidden, 4 * hidden, num_layers},  // ffn down
                                {vocab, hidden, 1}};               // head

  Measured linears;
  for (const LinearShape& shape : shapes) {
    const Measured one = measure(shape, tokens);
    linears.seconds += one.seconds;
    linears.flops += one.flops;
  }
  const double rate = linears.flops / linears.seconds;
  const double attention_flops = 12.0 * static_cast<double>(num_layers * seq_len * hidden * tokens);
  const double step_seconds = (linears.flops + attention_flops) / rate;
  fmt::print("{{\"gflops_per_second\": {:.2f}, \"tokens_per_second\": {:.2f}, \"threads\": {}, \"core\": \"{}\"}}\n",
             rate * 1e-9, static_cast<double>(tokens) / step_seconds, omp_get_max_threads(), openblas_get_corename());
  return 0;
}
