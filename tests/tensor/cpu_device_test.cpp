#include "tensor/cpu/cpu_device.h"

#include <gmock/gmock.h>
#include <omp.h>
#include <sched.h>

#include <chrono>

#include "tensor/cpu/huge_page_source.h"
#include "tests/support/tensors.h"

namespace tensor::cpu {
namespace {

using CpuDeviceTest = tests::CpuTest;
using tests::Values;
using tests::values_of;

TEST_F(CpuDeviceTest, DescribesThreadsAndBlas) {
  EXPECT_THAT(device_.describe(), testing::MatchesRegex("cpu, 2 threads, OpenBLAS [0-9.]+ [A-Za-z0-9]+ \\(openmp\\)"));
}

TEST(CpuDevice, UsesTheCoresItMayUse) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  const int cores = CPU_COUNT(&allowed);

  EXPECT_EQ(CpuDevice({}).num_threads(), cores);
  EXPECT_EQ(CpuDevice({.ranks_on_node = cores}).num_threads(), 1);
  EXPECT_EQ(CpuDevice({.ranks_on_node = 100 * cores}).num_threads(), 1);
  EXPECT_EQ(CpuDevice({.num_threads = 3, .ranks_on_node = 2}).num_threads(), 3);
  EXPECT_EQ(omp_get_max_threads(), 3);
}

TEST_F(CpuDeviceTest, CopiesThereAndBack) {
  Values numbers = tests::random_values(1'000'003, 1);
  Tensor x = device_.allocate({1'000'003}, Dtype::fp64, MemoryCategory::other);
  device_.copy_from_host(numbers.data(), x);
  Values back(numbers.size());
  device_.copy_to_host(x, back.data());

  EXPECT_EQ(back, numbers);
}

TEST_F(CpuDeviceTest, CopiesRowsThatLieApart) {
  const Tensor from = tests::random_tensor(device_, {7, 5}, Dtype::fp32, 1);
  Tensor to = tests::make_tensor(device_, {7, 4}, Dtype::fp32, Values(28, -1));
  Tensor part = to.columns(1, 3);
  device_.copy(from.columns(2, 4), part);
  std::vector<float> host(14);
  device_.copy_to_host(part, host.data());

  EXPECT_EQ(values_of(part), values_of(from.columns(2, 4)));
  EXPECT_EQ(Values(host.begin(), host.end()), values_of(part));
  EXPECT_EQ(values_of(to.columns(3, 4)), Values(7, -1));
  EXPECT_EQ(values_of(to.columns(0, 1)), Values(7, -1));
}

TEST_F(CpuDeviceTest, RefusesCopiesBetweenShapesOrDtypes) {
  const Tensor from = tests::random_tensor(device_, {2, 3}, Dtype::fp32, 1);
  Tensor other_shape = device_.allocate({3, 2}, Dtype::fp32, MemoryCategory::other);
  Tensor other_dtype = device_.allocate({2, 3}, Dtype::fp64, MemoryCategory::other);
  Tensor apart = other_shape.columns(0, 1);

  EXPECT_THROW(device_.copy(from, other_shape), InternalError);
  EXPECT_THROW(device_.copy(from, other_dtype), InternalError);
  EXPECT_THROW(device_.copy_from_host(from.raw(), apart), InternalError);
}

TEST_F(CpuDeviceTest, ZeroesLargeAndEmptyTensors) {
  Tensor large = tests::undefined_tensor(device_, {1000, 999}, Dtype::fp32);
  Tensor empty = device_.allocate({0, 4}, Dtype::fp32, MemoryCategory::other);
  device_.zero(large);
  device_.zero(empty);

  EXPECT_EQ(values_of(large), Values(999'000, 0));
}

TEST_F(CpuDeviceTest, MeasuresPeakOnceAndSoon) {
  const auto start = std::chrono::steady_clock::now();
  const double fp32 = device_.peak_flops(Dtype::fp32), fp64 = device_.peak_flops(Dtype::fp64);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;

  EXPECT_GT(fp32, 1e9);
  EXPECT_LT(fp32, 1e13);
  EXPECT_GT(fp64, 0.3 * fp32 / 2);
  EXPECT_EQ(device_.peak_flops(Dtype::fp32), fp32);
  EXPECT_EQ(device_.peak_flops(Dtype::bf16), fp32);
  EXPECT_LT(elapsed.count(), 2.0);  // about 0.05; a loaded machine takes longer
}

TEST(HugePageSource, MapsZeroedMemoryOnHugePageBoundaries) {
  HugePageSource source;
  constexpr int64_t kBytes = int64_t{6} << 20;
  auto* data = static_cast<unsigned char*>(source.map(kBytes));

  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % (2 << 20), 0u);
  EXPECT_EQ(std::count(data, data + kBytes, 0), kBytes);
  data[0] = data[kBytes - 1] = 1;
  source.unmap(data, kBytes);
}

TEST(HugePageSource, SaysHowMuchItCouldNotMap) {
  HugePageSource source;
  try {
    source.map(int64_t{1} << 50);
    FAIL() << "a petabyte was mapped";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("1125899906842624 bytes"));
  }
}

}  // namespace
}  // namespace tensor::cpu
