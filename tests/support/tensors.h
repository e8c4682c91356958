#pragma once
/// Tensors to and from plain vectors of double, for comparing with naive loops.

#include <gtest/gtest.h>

#include <vector>

#include "tensor/ops.h"
#include "tensor/philox.h"
#include "tests/support/tolerance.h"

namespace tests {

using Values = std::vector<double>;

/// Standard normals, a function of the seed alone.
inline Values random_values(int64_t count, uint64_t seed) {
  Values values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor::to_normals(tensor::Philox::draw(tensor::Philox::counter(i, 0), tensor::Philox::key(seed)))[0];
  }
  return values;
}

template <class T>
inline void store(double value, void* data, int64_t index) {
  if constexpr (std::is_same_v<T, tensor::bfloat16>) {
    static_cast<T*>(data)[index] = T(static_cast<float>(value));
  } else {
    static_cast<T*>(data)[index] = static_cast<T>(value);
  }
}

inline void store(tensor::Dtype dtype, double value, void* data, int64_t index) {
  switch (dtype) {
    case tensor::Dtype::fp32:
      return store<float>(value, data, index);
    case tensor::Dtype::bf16:
      return store<tensor::bfloat16>(value, data, index);
    case tensor::Dtype::fp64:
      return store<double>(value, data, index);
    case tensor::Dtype::int32:
      return store<int32_t>(value, data, index);
    case tensor::Dtype::int64:
      return store<int64_t>(value, data, index);
  }
}

inline double load(tensor::Dtype dtype, const void* data, int64_t index) {
  switch (dtype) {
    case tensor::Dtype::fp32:
      return static_cast<double>(static_cast<const float*>(data)[index]);
    case tensor::Dtype::bf16:
      return static_cast<float>(static_cast<const tensor::bfloat16*>(data)[index]);
    case tensor::Dtype::fp64:
      return static_cast<const double*>(data)[index];
    case tensor::Dtype::int32:
      return static_cast<const int32_t*>(data)[index];
    case tensor::Dtype::int64:
      return static_cast<double>(static_cast<const int64_t*>(data)[index]);
  }
  return 0;
}

/// Index in memory of element `index`, counted row after row.
inline int64_t memory_index(const tensor::Tensor& x, int64_t index) {
  const int64_t row_numel = std::max<int64_t>(1, x.shape().row_numel());
  return index / row_numel * x.row_stride() + index % row_numel;
}

/// Writes through views too. CPU only.
inline void fill(tensor::Tensor& x, const Values& values) {
  ASSERT_EQ(static_cast<int64_t>(values.size()), x.numel());
  for (int64_t i = 0; i < x.numel(); ++i) {
    store(x.dtype(), values[static_cast<size_t>(i)], x.raw(), memory_index(x, i));
  }
}

inline Values values_of(const tensor::Tensor& x) {
  Values values(static_cast<size_t>(x.numel()));
  for (int64_t i = 0; i < x.numel(); ++i) values[static_cast<size_t>(i)] = load(x.dtype(), x.raw(), memory_index(x, i));
  return values;
}

inline tensor::Tensor make_tensor(tensor::Device& device, tensor::Shape shape, tensor::Dtype dtype,
                                  const Values& values) {
  tensor::Tensor x = device.allocate(shape, dtype, tensor::MemoryCategory::other);
  fill(x, values);
  return x;
}

inline tensor::Tensor random_tensor(tensor::Device& device, tensor::Shape shape, tensor::Dtype dtype, uint64_t seed) {
  return make_tensor(device, shape, dtype, random_values(shape.numel(), seed));
}

/// Filled with NaN: what an overwriting operation must not read.
inline tensor::Tensor undefined_tensor(tensor::Device& device, tensor::Shape shape, tensor::Dtype dtype) {
  return make_tensor(device, shape, dtype, Values(static_cast<size_t>(shape.numel()), std::nan("")));
}

/// Bitwise equality of all elements.
inline bool is_same(const tensor::Tensor& a, const tensor::Tensor& b) {
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  const size_t row_bytes = static_cast<size_t>(a.shape().row_numel() * tensor::size_of(a.dtype()));
  for (int64_t row = 0; row < a.dim(0); ++row) {
    if (std::memcmp(a.rows(row, row + 1).raw(), b.rows(row, row + 1).raw(), row_bytes) != 0) return false;
  }
  return true;
}

/// The CPU backend with two threads, and its parts under short names.
class CpuTest : public testing::Test {
 protected:
  tensor::Backend backend_ = tensor::make_cpu_backend({.num_threads = 2});
  tensor::Device& device_ = *backend_.device;
  tensor::Ops& ops_ = *backend_.ops;
};

}  // namespace tests
