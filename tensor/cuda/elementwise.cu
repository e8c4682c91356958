#include "tensor/cuda/device_math.cuh"
#include "tensor/cuda/kernels.h"

namespace tensor::cuda {
namespace {

template <class T>
__global__ void add_kernel(Rows a, Rows b, Rows y, int64_t rows, int64_t columns) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * columns; i += stride) {
    const int64_t row = i / columns, column = i % columns;
    const acc_t<T> sum = load(static_cast<const T*>(a.data)[row * a.row_stride + column]) +
                         load(static_cast<const T*>(b.data)[row * b.row_stride + column]);
    store(static_cast<T*>(y.data)[row * y.row_stride + column], sum);
  }
}

template <class From, class To>
__global__ void cast_kernel(const From* x, To* y, int64_t numel) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < numel; i += stride) store(y[i], load(x[i]));
}

}  // namespace

void launch_add(Dtype dtype, Rows a, Rows b, Rows y, int64_t rows, int64_t columns, cudaStream_t stream) {
  dispatch(dtype, [&]<class T>() {
    add_kernel<T><<<num_blocks(rows * columns), kThreads, 0, stream>>>(a, b, y, rows, columns);
  });
}

void launch_cast(Dtype from, const void* x, Dtype to, void* y, int64_t numel, cudaStream_t stream) {
  dispatch(from, [&]<class From>() {
    dispatch(to, [&]<class To>() {
      cast_kernel<<<num_blocks(numel), kThreads, 0, stream>>>(static_cast<const From*>(x), static_cast<To*>(y), numel);
    });
  });
}

}  // namespace tensor::cuda
