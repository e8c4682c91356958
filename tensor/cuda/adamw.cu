#include "tensor/cuda/device_math.cuh"
#include "tensor/cuda/kernels.h"

namespace tensor::cuda {
namespace {

/// One pass: 28 bytes a parameter in fp32, so the memory's bandwidth is the time.
template <class T, class Value>
__global__ void adamw_kernel(AdamWLaunch adamw, AdamWBuffers buffers) {
  const auto* grads = static_cast<const T*>(buffers.grad);
  auto* master = static_cast<T*>(buffers.master);
  auto* exp_avg = static_cast<T*>(buffers.exp_avg);
  auto* exp_avg_sq = static_cast<T*>(buffers.exp_avg_sq);
  auto* value = static_cast<Value*>(buffers.value);
  const T beta1 = static_cast<T>(adamw.beta1), beta2 = static_cast<T>(adamw.beta2);

  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < buffers.numel; i += stride) {
    const T grad = grads[i] * static_cast<T>(adamw.grad_scale);
    const T first = beta1 * exp_avg[i] + (T{1} - beta1) * grad;
    const T second = beta2 * exp_avg_sq[i] + (T{1} - beta2) * grad * grad;
    const T deviation = sqrt(second) * static_cast<T>(adamw.inv_correction2) + static_cast<T>(adamw.eps);
    const T updated = master[i] * static_cast<T>(adamw.decay) - static_cast<T>(adamw.step_size) * first / deviation;
    exp_avg[i] = first;
    exp_avg_sq[i] = second;
    master[i] = updated;
    if (value) store(value[i], updated);
  }
}

}  // namespace

void launch_adamw(Dtype dtype, Dtype value_dtype, const AdamWLaunch& adamw, const AdamWBuffers& buffers,
                  cudaStream_t stream) {
  const unsigned int blocks = num_blocks(buffers.numel);
  dispatch(value_dtype, [&]<class Value>() {
    if (dtype == Dtype::fp64) {
      adamw_kernel<double, Value><<<blocks, kThreads, 0, stream>>>(adamw, buffers);
    } else {
      adamw_kernel<float, Value><<<blocks, kThreads, 0, stream>>>(adamw, buffers);
    }
  });
}

}  // namespace tensor::cuda
