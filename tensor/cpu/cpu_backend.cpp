#include "tensor/cpu/cpu_device.h"
#include "tensor/cpu/cpu_ops.h"

namespace tensor {

Backend make_cpu_backend(const CpuOptions& options) {
  Backend backend;
  backend.device = std::make_unique<cpu::CpuDevice>(options);
  backend.ops = std::make_unique<cpu::CpuOps>(*backend.device);
  return backend;
}

}  // namespace tensor
