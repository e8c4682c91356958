#include <gtest/gtest.h>

#include <array>

#include "tensor/ops.h"

namespace tensor {
namespace {

constexpr int64_t kPetabyte = int64_t{1} << 50;

class PaperBackend : public testing::Test {
 protected:
  Tensor make(Shape shape, MemoryCategory category = MemoryCategory::activations, Dtype dtype = Dtype::fp32) {
    return device_.allocate(shape, dtype, category);
  }

  Backend backend_ = make_paper_backend();
  Device& device_ = *backend_.device;
  Ops& ops_ = *backend_.ops;
  Tensor absent_;
};

TEST_F(PaperBackend, IsItsOwnKindOfDevice) {
  EXPECT_EQ(device_.kind(), DeviceKind::paper);
  EXPECT_EQ(device_.describe(), "paper");
}

TEST_F(PaperBackend, CountsPetabytes) {
  {
    const Tensor weights = make({kPetabyte}, MemoryCategory::parameters, Dtype::bf16);
    const Tensor state = make({3, kPetabyte}, MemoryCategory::optimizer);
    EXPECT_EQ(device_.pool().use(MemoryCategory::parameters).live_bytes, 2 * kPetabyte);
    EXPECT_EQ(device_.pool().use(MemoryCategory::optimizer).live_bytes, 12 * kPetabyte);
    EXPECT_EQ(device_.pool().total().live_bytes, 14 * kPetabyte);
    EXPECT_GE(static_cast<char*>(state.raw()) - static_cast<char*>(weights.raw()), 2 * kPetabyte);
  }
  EXPECT_EQ(device_.pool().total().live_bytes, 0);
  EXPECT_EQ(device_.pool().total().peak_bytes, 14 * kPetabyte);
}

TEST_F(PaperBackend, CountsWhatARealDeviceCounts) {
  const Backend cpu = make_cpu_backend({.num_threads = 1});
  for (Device* device : {&device_, cpu.device.get()}) {
    Tensor kept = device->allocate({1001}, Dtype::fp64, MemoryCategory::gradients);
    for (int64_t step = 0; step < 3; ++step) {
      const Tensor x = device->allocate({7 + step, 33}, Dtype::fp32, MemoryCategory::activations);
      const Tensor y = device->allocate({100'003 * step}, Dtype::bf16, MemoryCategory::activations);
    }
    kept = {};
  }

  for (int i = 0; i < kNumMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    EXPECT_EQ(device_.pool().use(category).peak_bytes, cpu.device->pool().use(category).peak_bytes);
    EXPECT_EQ(device_.pool().use(category).live_bytes, cpu.device->pool().use(category).live_bytes);
  }
  EXPECT_EQ(device_.pool().total().peak_bytes, cpu.device->pool().total().peak_bytes);
}

TEST_F(PaperBackend, CopiesNothingAndReadsZeros) {
  Tensor x = make({3}), y = make({3});
  std::array<float, 3> host = {1, 2, 3};

  device_.copy_from_host(host.data(), x);
  device_.copy(x, y);
  device_.zero(x);
  device_.copy_to_host(y, host.data());

  EXPECT_EQ(host, (std::array<float, 3>{0, 0, 0}));
}

TEST_F(PaperBackend, TakesALayerOfAnySizeForwardAndBackward) {
  const int64_t tokens = 1 << 30, hidden = 1 << 20, heads = 1 << 10, head_dim = hidden / heads;
  Tensor x = make({tokens, hidden}), y = make({tokens, hidden}), stats = make({tokens, 2});
  Tensor weight = make({hidden, hidden}), norm_weight = make({hidden}), lse = make({tokens, heads});
  Tensor indices = make({tokens}, MemoryCategory::other, Dtype::int32);
  Tensor table = make({tokens, head_dim});
  const Tensor q = x.reshaped({tokens, heads, head_dim});
  Tensor o = y.reshaped({tokens, heads, head_dim}), dq = q.view(), dk = q.view(), dv = q.view();
  const AttentionMask mask{
      .num_sequences = 2, .query_positions = indices, .first_visible = indices, .key_positions = indices};

  ops_.embedding(indices, weight, 0, x, Write::overwrite);
  ops_.norm({}, x, norm_weight, absent_, y, stats);
  ops_.linear(x, weight, absent_, y);
  ops_.rope(dq, indices, table, Transpose::no);
  ops_.attention(q, q, q, mask, 1, o, lse);
  ops_.attention_backward(q, q, q, o, lse, o, mask, 1, dq, dk, dv);
  ops_.linear_backward_input(y, weight, x, Write::accumulate);
  ops_.linear_backward_weight(y, x, weight, norm_weight, Write::accumulate);
  ops_.gemm(x, Transpose::yes, y, Transpose::no, weight, Write::overwrite);

  EXPECT_EQ(ops_.max_abs(weight), 0);
  EXPECT_EQ(ops_.sum_of_squares(weight, 0).value(), 0);
}

TEST_F(PaperBackend, FindsShapesThatDoNotFit) {
  Tensor x = make({4, 8}), weight = make({16, 8}), y = make({4, 15}), rows = make({4}), flat = make({32});

  EXPECT_THROW(ops_.linear(x, weight, absent_, y), InternalError);
  EXPECT_THROW(ops_.gemm(x, Transpose::no, weight, Transpose::no, y, Write::overwrite), InternalError);
  EXPECT_THROW(ops_.activation(Activation::swiglu, x, y), InternalError);
  EXPECT_THROW(ops_.add(x, y, x), InternalError);
  EXPECT_THROW(ops_.adamw({}, flat, flat, flat, rows, absent_), InternalError);
  EXPECT_THROW(ops_.cross_entropy_loss(rows, rows, flat), InternalError);
  EXPECT_THROW(device_.copy(x, y), InternalError);
}

}  // namespace
}  // namespace tensor
