#pragma once
/// The bytes of a tensor where the host can reach them: its own memory, or a copy where a device keeps it elsewhere.

#include <cstring>
#include <memory>

#include "tensor/device.h"
#include "tensor/tensor.h"

namespace checkpoint {

class HostBytes {
 public:
  explicit HostBytes(const tensor::Tensor& x) : data_(static_cast<std::byte*>(x.raw())) {
    if (x.device().kind() == tensor::DeviceKind::cpu || x.numel() == 0) return;
    copy_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(x.bytes()));
    data_ = copy_.get();
  }

  std::byte* data() const { return data_; }
  void upload(tensor::Tensor& x) const {  ///< after the bytes were written
    if (copy_) x.device().copy_from_host(data_, x);
  }
  void download(const tensor::Tensor& x) const {  ///< before they are read
    if (copy_) x.device().copy_to_host(x, data_);
  }

 private:
  std::byte* data_;
  std::unique_ptr<std::byte[]> copy_;
};

/// Fills to[x.bytes()] without the threads that a device copies with, which training needs.
inline void copy_in_this_thread(const tensor::Tensor& x, std::byte* to) {
  if (x.device().kind() != tensor::DeviceKind::cpu) return x.device().copy_to_host(x, to);
  std::memcpy(to, x.raw(), static_cast<size_t>(x.bytes()));
}

}  // namespace checkpoint
