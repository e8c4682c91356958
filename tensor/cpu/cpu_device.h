#pragma once
/// The processor cores and memory of this process as a device. Calls return when the work is done.

#include <map>

#include "tensor/device.h"
#include "tensor/ops.h"

namespace tensor::cpu {

class CpuDevice final : public Device {
 public:
  /// Sets the number of threads of OpenMP (for the calling thread's loops) and of OpenBLAS.
  explicit CpuDevice(const CpuOptions& options);

  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string describe() const override;
  int num_threads() const { return num_threads_; }

  void copy_from_host(const void* host, Tensor& to) override;
  void copy_to_host(const Tensor& from, void* host) override;
  void copy(const Tensor& from, Tensor& to) override;
  void zero(Tensor& x) override;
  void synchronize() override {}
  double peak_flops(Dtype dtype) override;

 private:
  int num_threads_;
  std::map<Dtype, double> peak_flops_;  // as measured
};

/// Cores in this process's affinity mask, divided by the ranks that share them; at least 1.
int default_num_threads(int ranks_on_node);

/// FLOP/s of a loop of fused multiply-adds that touches only registers, over `num_threads` threads. Takes about 10 ms.
double measure_peak_flops(Dtype dtype, int num_threads);

}  // namespace tensor::cpu
