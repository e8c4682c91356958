#pragma once
/// What kernels share: element types, conversion, the size of a launch, and the sum over a block.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>

#include "tensor/dtype.h"

namespace tensor::cuda {

constexpr int kThreads = 256;  ///< of a block
constexpr int kWarpSize = 32;

/// The type arithmetic on T is done in.
template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<__nv_bfloat16> {
  using type = float;
};
template <class T>
using acc_t = typename Accumulator<T>::type;

template <class T>
__device__ acc_t<T> load(const T& x) {
  return static_cast<acc_t<T>>(x);
}
template <>
__device__ inline float load(const __nv_bfloat16& x) {
  return __bfloat162float(x);
}

template <class T, class Acc>
__device__ void store(T& to, Acc x) {
  to = static_cast<T>(x);
}
template <class Acc>
__device__ void store(__nv_bfloat16& to, Acc x) {
  to = __float2bfloat16_rn(static_cast<float>(x));  // nearest even, like the CPU
}

/// Enough blocks to fill any GPU of today several times over; kernels stride over the rest.
inline unsigned int num_blocks(int64_t work_items, int64_t items_per_block = kThreads) {
  constexpr int64_t kMaxBlocks = 132 * 16;
  const int64_t needed = (work_items + items_per_block - 1) / items_per_block;
  return static_cast<unsigned int>(needed < kMaxBlocks ? needed : kMaxBlocks);
}

/// The sum of `x` over the block, in every thread; an order fixed by kThreads alone. `scratch` [kThreads / kWarpSize].
template <class Acc>
__device__ Acc block_sum(Acc x, Acc* scratch) {
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  __syncthreads();  // the scratch of an earlier sum has been read
  if (threadIdx.x % kWarpSize == 0) scratch[threadIdx.x / kWarpSize] = x;
  __syncthreads();
  Acc sum = 0;
  for (int warp = 0; warp < kThreads / kWarpSize; ++warp) sum += scratch[warp];
  return sum;
}

/// Calls body.operator()<T>() with the device type of a floating dtype.
template <class Body>
void dispatch(Dtype dtype, Body&& body) {
  switch (dtype) {
    case Dtype::fp32:
      return body.template operator()<float>();
    case Dtype::bf16:
      return body.template operator()<__nv_bfloat16>();
    case Dtype::fp64:
      return body.template operator()<double>();
    default:
      throw std::logic_error("kernels take floating dtypes");
  }
}

}  // namespace tensor::cuda
