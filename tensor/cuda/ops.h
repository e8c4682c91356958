#pragma once
/// The operations that exist on CUDA so far, with the shapes and meanings of the methods of tensor::Ops that bear their
/// names. All are queued on the device's stream.

#include "tensor/cuda/cuda_device.h"
#include "tensor/ops.h"

namespace tensor::cuda {

void gemm(CudaDevice& device, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b, Tensor& c,
          Write write);
void norm(CudaDevice& device, const Norm& norm, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y,
          Tensor& stats);
void add(CudaDevice& device, const Tensor& a, const Tensor& b, Tensor& y);
void cast(CudaDevice& device, const Tensor& x, Tensor& y);
void adamw(CudaDevice& device, const AdamW& adamw, const Tensor& grad, Tensor& master, Tensor& exp_avg,
           Tensor& exp_avg_sq, Tensor& value);

}  // namespace tensor::cuda
