/// Each CUDA operation against the CPU's.

#include "tests/tensor/cuda/on_gpu.h"

namespace tests {
namespace {

using tensor::AdamW;
using tensor::Dtype;
using tensor::Norm;
using tensor::NormKind;
using tensor::Tensor;
using tensor::Transpose;
using tensor::Write;

constexpr Dtype kFloating[] = {Dtype::fp32, Dtype::bf16, Dtype::fp64};
constexpr double kLargest = 5;  // of a few thousand normal numbers, nearly always

class CudaOps : public OnGpu {};

TEST_F(CudaOps, AddMatchesCpu) {
  for (const Dtype dtype : kFloating) {
    const Tensor a = random({37, 65}, dtype, "a"), b = random({37, 65}, dtype, "b");
    Tensor expected = on_cpu({37, 65}, dtype), actual = on_gpu({37, 65}, dtype);
    cpu.ops->add(a, b, expected);

    tensor::cuda::add(*gpu, to_gpu(a), to_gpu(b), actual);

    expect_near(actual, expected, 0);
  }
}

TEST_F(CudaOps, AddTakesRowsThatLieApart) {
  const Tensor a = random({9, 40}, Dtype::fp32, "a"), b = random({9, 10}, Dtype::fp32, "b");
  const Tensor wide = to_gpu(a);
  Tensor expected = on_cpu({9, 10}, Dtype::fp32), actual = on_gpu({9, 10}, Dtype::fp32);
  cpu.ops->add(a.columns(20, 30), b, expected);

  tensor::cuda::add(*gpu, wide.columns(20, 30), to_gpu(b), actual);

  expect_near(actual, expected, 0);
}

TEST_F(CudaOps, CastMatchesCpuBetweenAllDtypes) {
  for (const Dtype from : kFloating) {
    for (const Dtype to : kFloating) {
      const Tensor x = random({1001}, from, "x");
      Tensor expected = on_cpu({1001}, to), actual = on_gpu({1001}, to);
      cpu.ops->cast(x, expected);

      tensor::cuda::cast(*gpu, to_gpu(x), actual);

      expect_near(actual, expected, 0);
    }
  }
}

TEST_F(CudaOps, NormMatchesCpu) {
  constexpr int64_t kFeatures = 387;
  for (const Dtype dtype : kFloating) {
    for (const NormKind kind : {NormKind::layer_norm, NormKind::rms_norm}) {
      const Norm norm{.kind = kind};
      const Tensor x = random({13, kFeatures}, dtype, "x");
      const Tensor weight = random({kFeatures}, dtype, "weight"), bias = random({kFeatures}, dtype, "bias");
      const Dtype acc = accumulator_of(dtype);
      Tensor expected = on_cpu({13, kFeatures}, dtype), expected_stats = on_cpu({13, 2}, acc);
      Tensor actual = on_gpu({13, kFeatures}, dtype), stats = on_gpu({13, 2}, acc);
      cpu.ops->norm(norm, x, weight, bias, expected, expected_stats);

      tensor::cuda::norm(*gpu, norm, to_gpu(x), to_gpu(weight), to_gpu(bias), actual, stats);

      expect_near(actual, expected, sum_tolerance(dtype, kFeatures, kLargest * kLargest));
      expect_near(stats, expected_stats, sum_tolerance(acc, kFeatures, kLargest));
    }
  }
}

TEST_F(CudaOps, GemmMatchesCpuInEachLayout) {
  constexpr int64_t kRows = 33, kColumns = 70, kInner = 129;
  for (const Dtype dtype : kFloating) {
    for (const Transpose ta : {Transpose::no, Transpose::yes}) {
      for (const Transpose tb : {Transpose::no, Transpose::yes}) {
        const bool is_ta = ta == Transpose::yes, is_tb = tb == Transpose::yes;
        const Tensor a = random({is_ta ? kInner : kRows, is_ta ? kRows : kInner}, dtype, "a");
        const Tensor b = random({is_tb ? kColumns : kInner, is_tb ? kInner : kColumns}, dtype, "b");
        Tensor expected = random({kRows, kColumns}, dtype, "c"), actual = to_gpu(expected);
        cpu.ops->gemm(a, ta, b, tb, expected, Write::accumulate);

        tensor::cuda::gemm(*gpu, to_gpu(a), ta, to_gpu(b), tb, actual, Write::accumulate);

        expect_near(actual, expected, 2 * sum_tolerance(dtype, kInner, kInner));
      }
    }
  }
}

TEST_F(CudaOps, GemmOfNothingIsZero) {
  Tensor c = to_gpu(random({3, 4}, Dtype::fp32, "c"));

  tensor::cuda::gemm(*gpu, on_gpu({3, 0}, Dtype::fp32), Transpose::no, on_gpu({0, 4}, Dtype::fp32), Transpose::no, c,
                     Write::overwrite);

  for (const double x : values(c)) EXPECT_EQ(x, 0);
}

TEST_F(CudaOps, AdamWMatchesCpuOverThreeSteps) {
  constexpr int64_t kNumel = 3001;
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp64}) {
    Tensor master = random({kNumel}, dtype, "master"), m = on_cpu({kNumel}, dtype), v = on_cpu({kNumel}, dtype);
    cpu.device->zero(m);
    cpu.device->zero(v);
    Tensor value = on_cpu({kNumel}, Dtype::bf16), gpu_value = on_gpu({kNumel}, Dtype::bf16);
    Tensor gpu_master = to_gpu(master), gpu_m = to_gpu(m), gpu_v = to_gpu(v);
    for (const int64_t step : {1, 2, 3}) {
      const AdamW adamw{.lr = 1e-2, .weight_decay = 0.1, .step = step, .grad_scale = 0.5};
      const Tensor grad = random({kNumel}, dtype, step == 2 ? "even" : "odd");
      cpu.ops->adamw(adamw, grad, master, m, v, value);
      tensor::cuda::adamw(*gpu, adamw, to_gpu(grad), gpu_master, gpu_m, gpu_v, gpu_value);
    }
    expect_near(gpu_master, master, sum_tolerance(dtype, 3, kLargest));
    expect_near(gpu_v, v, sum_tolerance(dtype, 3, kLargest * kLargest));
    expect_near(gpu_value, value, sum_tolerance(Dtype::bf16, 3, kLargest));
  }
}

}  // namespace
}  // namespace tests
