#pragma once
/// A device on paper: it hands out addresses that nobody may follow, so that petabytes fit, and counts them as a real
/// device would.

#include "tensor/device.h"

namespace tensor::paper {

/// Addresses from an endless strip; each is used once.
class PaperSource final : public MemorySource {
 public:
  void* map(int64_t bytes) override;
  void unmap(void*, int64_t) override {}

 private:
  uintptr_t next_ = uintptr_t{1} << 40;
};

class PaperDevice final : public Device {
 public:
  PaperDevice();

  DeviceKind kind() const override { return DeviceKind::paper; }
  std::string describe() const override { return "paper"; }

  void copy_from_host(const void* host, Tensor& to) override;
  void copy_to_host(const Tensor& from, void* host) override;  ///< zeros
  void copy(const Tensor& from, Tensor& to) override;
  void zero(Tensor&) override {}
  void synchronize() override {}
  double peak_flops(Dtype dtype) override;  ///< infinite: whatever is done here takes no time
};

}  // namespace tensor::paper
