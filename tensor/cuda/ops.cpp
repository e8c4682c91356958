#include "tensor/cuda/ops.h"

#include <cmath>

#include "tensor/cuda/check.h"
#include "tensor/cuda/kernels.h"

namespace tensor::cuda {
namespace {

Rows rows_of(const Tensor& x) { return {x.raw(), x.row_stride()}; }

}  // namespace

void gemm(CudaDevice& device, const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b, Tensor& c,
          Write write) {
  device.matmul().gemm(a, transpose_a, b, transpose_b, c, write, device.stream());
}

void norm(CudaDevice& device, const Norm& norm, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y,
          Tensor& stats) {
  CHECK(x.shape() == y.shape(), "y {} has the shape of x {}", y.shape().str(), x.shape().str());
  CHECK(stats.dtype() == accumulator_of(x.dtype()), "statistics of {} are not {}", to_string(x.dtype()),
        to_string(stats.dtype()));
  if (x.numel() == 0) return;
  const int64_t features = x.dim(-1);
  launch_norm(x.dtype(),
              {.x = rows_of(x),
               .y = rows_of(y),
               .weight = weight.raw(),
               .bias = bias ? bias.raw() : nullptr,
               .stats = stats.raw(),
               .tokens = x.dim(0),
               .groups = x.shape().row_numel() / features,
               .features = features,
               .eps = norm.eps,
               .is_layer_norm = norm.kind == NormKind::layer_norm},
              device.stream().get());
  CUDA_CHECK(cudaGetLastError());
}

void add(CudaDevice& device, const Tensor& a, const Tensor& b, Tensor& y) {
  CHECK(a.shape() == b.shape() && a.shape() == y.shape(), "shapes {}, {} and {} agree", a.shape().str(),
        b.shape().str(), y.shape().str());
  if (y.numel() == 0) return;
  launch_add(y.dtype(), rows_of(a), rows_of(b), rows_of(y), y.dim(0), y.shape().row_numel(), device.stream().get());
  CUDA_CHECK(cudaGetLastError());
}

void cast(CudaDevice& device, const Tensor& x, Tensor& y) {
  CHECK(x.shape() == y.shape() && x.is_contiguous() && y.is_contiguous(), "{} and {} are contiguous and alike",
        x.shape().str(), y.shape().str());
  if (x.numel() == 0) return;
  launch_cast(x.dtype(), x.raw(), y.dtype(), y.raw(), x.numel(), device.stream().get());
  CUDA_CHECK(cudaGetLastError());
}

void adamw(CudaDevice& device, const AdamW& adamw, const Tensor& grad, Tensor& master, Tensor& exp_avg,
           Tensor& exp_avg_sq, Tensor& value) {
  CHECK(master.dtype() == Dtype::fp32 || master.dtype() == Dtype::fp64, "master weights are not {}",
        to_string(master.dtype()));
  if (master.numel() == 0) return;
  const double step = static_cast<double>(adamw.step);
  const AdamWLaunch launch{.grad_scale = adamw.grad_scale,
                           .beta1 = adamw.beta1,
                           .beta2 = adamw.beta2,
                           .eps = adamw.eps,
                           .step_size = adamw.lr / (1 - std::pow(adamw.beta1, step)),
                           .inv_correction2 = 1 / std::sqrt(1 - std::pow(adamw.beta2, step)),
                           .decay = 1 - adamw.lr * adamw.weight_decay};
  const AdamWBuffers buffers{.grad = grad.raw(),
                             .master = master.raw(),
                             .exp_avg = exp_avg.raw(),
                             .exp_avg_sq = exp_avg_sq.raw(),
                             .value = value ? value.raw() : nullptr,
                             .numel = master.numel()};
  launch_adamw(master.dtype(), value ? value.dtype() : master.dtype(), launch, buffers, device.stream().get());
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace tensor::cuda
