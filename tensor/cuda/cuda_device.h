#pragma once
/// A GPU as a Device: one compute stream, on which everything that this class and the operations queue runs in order.

#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <string>

#include "tensor/cuda/matmul.h"
#include "tensor/cuda/stream.h"
#include "tensor/device.h"

namespace tensor::cuda {

/// Devices this process can use; 0 where there is no GPU or no driver. Never throws.
int num_devices();

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index);  ///< throws LayoutError where there is no such device
  ~CudaDevice() override;

  DeviceKind kind() const override { return DeviceKind::cuda; }
  std::string describe() const override;  ///< "cuda 0, NVIDIA H200, 132 SMs, 139.8 GiB, compute capability 9.0"

  void copy_from_host(const void* host, Tensor& to) override;
  void copy_to_host(const Tensor& from, void* host) override;
  void copy(const Tensor& from, Tensor& to) override;
  void zero(Tensor& x) override;
  void synchronize() override;
  double peak_flops(Dtype dtype) override;

  const Stream& stream() const { return stream_; }
  Matmul& matmul() { return *matmul_; }

 private:
  double measure_peak_flops(Dtype dtype);

  int index_;
  cudaDeviceProp properties_{};
  Stream stream_;
  std::unique_ptr<Matmul> matmul_;
  std::map<Dtype, double> measured_peaks_;
};

}  // namespace tensor::cuda
