#include "tensor/cuda/device_math.cuh"
#include "tensor/cuda/kernels.h"

namespace tensor::cuda {
namespace {

/// A block a row. The row is read three times (mean, deviation, result); it stays in L1 and L2 meanwhile. The deviation
/// is summed around the mean: E[x^2] - E[x]^2 loses everything where the mean is large.
template <class T>
__global__ void norm_kernel(NormLaunch norm) {
  using Acc = acc_t<T>;
  __shared__ Acc scratch[kThreads / kWarpSize];
  const auto* weight = static_cast<const T*>(norm.weight);
  const auto* bias = static_cast<const T*>(norm.bias);

  for (int64_t row = blockIdx.x; row < norm.tokens * norm.groups; row += gridDim.x) {
    const int64_t token = row / norm.groups, group = row % norm.groups;
    const T* x = static_cast<const T*>(norm.x.data) + token * norm.x.row_stride + group * norm.features;
    T* y = static_cast<T*>(norm.y.data) + token * norm.y.row_stride + group * norm.features;

    Acc mean = 0;
    if (norm.is_layer_norm) {
      Acc sum = 0;
      for (int64_t i = threadIdx.x; i < norm.features; i += kThreads) sum += load(x[i]);
      mean = block_sum(sum, scratch) / static_cast<Acc>(norm.features);
    }
    Acc squares = 0;
    for (int64_t i = threadIdx.x; i < norm.features; i += kThreads) {
      const Acc centred = load(x[i]) - mean;
      squares += centred * centred;
    }
    const Acc variance = block_sum(squares, scratch) / static_cast<Acc>(norm.features);
    const Acc inv_deviation = Acc{1} / sqrt(variance + static_cast<Acc>(norm.eps));

    for (int64_t i = threadIdx.x; i < norm.features; i += kThreads) {
      const Acc scaled = (load(x[i]) - mean) * inv_deviation * load(weight[i]);
      store(y[i], bias ? scaled + load(bias[i]) : scaled);
    }
    if (threadIdx.x == 0) {
      static_cast<Acc*>(norm.stats)[2 * row] = mean;
      static_cast<Acc*>(norm.stats)[2 * row + 1] = inv_deviation;
    }
  }
}

}  // namespace

void launch_norm(Dtype dtype, const NormLaunch& norm, cudaStream_t stream) {
  dispatch(dtype,
           [&]<class T>() { norm_kernel<T><<<num_blocks(norm.tokens * norm.groups, 1), kThreads, 0, stream>>>(norm); });
}

}  // namespace tensor::cuda
