#pragma once
/// A CPU and a CUDA backend side by side, and tensors that both hold. Tests are skipped where there is no GPU.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tensor/cuda/ops.h"
#include "tensor/philox.h"
#include "tests/support/tolerance.h"

namespace tests {

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tensor::cuda::num_devices() == 0) GTEST_SKIP() << "no CUDA device";
    cpu = tensor::make_cpu_backend();
    gpu = std::make_unique<tensor::cuda::CudaDevice>(0);
  }

  /// Normal numbers that depend on `name` alone, rounded to `dtype`, on the CPU.
  tensor::Tensor random(tensor::Shape shape, tensor::Dtype dtype, const char* name) {
    tensor::Tensor wide = cpu.device->allocate(shape, tensor::Dtype::fp64, tensor::MemoryCategory::other);
    const auto key = tensor::Philox::key(tensor::hash_name(name));
    for (int64_t i = 0; i < wide.numel(); ++i) {
      const auto bits = tensor::Philox::draw(tensor::Philox::counter(static_cast<uint64_t>(i), 0), key);
      wide.data<double>()[i] = tensor::to_normals(bits)[0];
    }
    tensor::Tensor x = cpu.device->allocate(shape, dtype, tensor::MemoryCategory::other);
    cpu.ops->cast(wide, x);
    return x;
  }

  tensor::Tensor on_cpu(tensor::Shape shape, tensor::Dtype dtype) {
    return cpu.device->allocate(shape, dtype, tensor::MemoryCategory::other);
  }
  tensor::Tensor on_gpu(tensor::Shape shape, tensor::Dtype dtype) {
    return gpu->allocate(shape, dtype, tensor::MemoryCategory::other);
  }
  tensor::Tensor to_gpu(const tensor::Tensor& x) {
    tensor::Tensor y = on_gpu(x.shape(), x.dtype());
    gpu->copy_from_host(x.raw(), y);
    return y;
  }

  /// Elements of a contiguous tensor of either device, as fp64.
  std::vector<double> values(const tensor::Tensor& x) {
    tensor::Tensor host = on_cpu(x.shape(), x.dtype()), wide = on_cpu(x.shape(), tensor::Dtype::fp64);
    x.device().copy_to_host(x, host.raw());
    cpu.ops->cast(host, wide);
    return {wide.data<double>(), wide.data<double>() + wide.numel()};
  }

  void expect_near(const tensor::Tensor& actual, const tensor::Tensor& expected, double tolerance) {
    const std::vector<double> a = values(actual), b = values(expected);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << "element " << i;
  }

  tensor::Backend cpu;
  std::unique_ptr<tensor::cuda::CudaDevice> gpu;
};

}  // namespace tests
