#include "tensor/paper/paper_device.h"

#include <cstring>
#include <limits>

#include "tensor/ops.h"
#include "tensor/paper/paper_ops.h"

namespace tensor {

namespace paper {

void* PaperSource::map(int64_t bytes) {
  CHECK(bytes > 0 && static_cast<uintptr_t>(bytes) <= std::numeric_limits<uintptr_t>::max() / 2 - next_,
        "{} more bytes have addresses", bytes);
  void* const data = reinterpret_cast<void*>(next_);
  next_ += static_cast<uintptr_t>(bytes);
  return data;
}

PaperDevice::PaperDevice() : Device(std::make_unique<Pool>(std::make_unique<PaperSource>())) {}

void PaperDevice::copy_from_host(const void*, Tensor& to) {
  CHECK(to.is_contiguous(), "a host copy fills a tensor whose rows do not lie apart, unlike {}", to.shape().str());
}

void PaperDevice::copy_to_host(const Tensor& from, void* host) {
  if (from.bytes() > 0) std::memset(host, 0, static_cast<size_t>(from.bytes()));
}

void PaperDevice::copy(const Tensor& from, Tensor& to) {
  CHECK(from.shape() == to.shape() && from.dtype() == to.dtype(), "a copy of {} {} has its shape and dtype, not {} {}",
        to_string(from.dtype()), from.shape().str(), to_string(to.dtype()), to.shape().str());
}

double PaperDevice::peak_flops(Dtype) { return std::numeric_limits<double>::infinity(); }

}  // namespace paper

Backend make_paper_backend() {
  Backend backend;
  backend.device = std::make_unique<paper::PaperDevice>();
  backend.ops = std::make_unique<paper::PaperOps>(*backend.device);
  return backend;
}

}  // namespace tensor
