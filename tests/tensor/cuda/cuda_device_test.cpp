#include "tests/tensor/cuda/on_gpu.h"

namespace tests {
namespace {

using tensor::Dtype;
using tensor::Tensor;

class CudaDevice : public OnGpu {};

TEST(CudaDeviceWithoutGpu, SaysWhatIsMissing) {
  const int beyond = tensor::cuda::num_devices();

  try {
    tensor::cuda::CudaDevice device(beyond);
    FAIL() << "a device that does not exist was opened";
  } catch (const tensor::LayoutError& error) {
    EXPECT_NE(std::string(error.what()).find("There is no CUDA device " + std::to_string(beyond)), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("Fix:"), std::string::npos);
  }
}

TEST_F(CudaDevice, CopiesThereAndBack) {
  const Tensor x = random({5, 7}, Dtype::fp32, "x");

  expect_near(to_gpu(x), x, 0);
}

TEST_F(CudaDevice, CopiesAndZeroesRowsThatLieApart) {
  const Tensor x = random({6, 12}, Dtype::fp32, "x");
  Tensor wide = to_gpu(x), narrow = on_gpu({6, 3}, Dtype::fp32), middle = wide.columns(4, 7);

  gpu->copy(middle, narrow);
  gpu->zero(middle);

  const std::vector<double> before = values(x), after = values(wide), copied = values(narrow);
  for (size_t row = 0; row < 6; ++row) {
    for (size_t column = 0; column < 12; ++column) {
      const bool is_middle = column >= 4 && column < 7;
      EXPECT_EQ(after[row * 12 + column], is_middle ? 0 : before[row * 12 + column]);
      if (is_middle) {
        EXPECT_EQ(copied[row * 3 + column - 4], before[row * 12 + column]);
      }
    }
  }
}

TEST_F(CudaDevice, ReusesMemoryThatWasGivenBack) {
  { const Tensor x = on_gpu({1 << 20}, Dtype::fp32); }
  const int64_t mapped = gpu->pool().mapped_bytes();

  { const Tensor x = on_gpu({1 << 20}, Dtype::fp32); }

  EXPECT_EQ(gpu->pool().mapped_bytes(), mapped);
}

TEST_F(CudaDevice, MakesOneStreamWaitForAnother) {
  tensor::cuda::Stream other;
  tensor::cuda::Event begin, end;
  Tensor x = on_gpu({1 << 20}, Dtype::fp32);

  begin.record(gpu->stream());
  gpu->zero(x);
  end.record(gpu->stream());
  end.make_wait(other);
  other.synchronize();

  EXPECT_GE(end.ms_since(begin), 0);
}

TEST_F(CudaDevice, KnowsItsPeak) {
  EXPECT_GT(gpu->peak_flops(Dtype::bf16), 1e12);
  EXPECT_GE(gpu->peak_flops(Dtype::bf16), gpu->peak_flops(Dtype::fp32));
}

}  // namespace
}  // namespace tests
