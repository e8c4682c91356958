#pragma once
/// A small training state in host memory, and a device to hang it on.

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "checkpoint/single_file.h"
#include "tensor/device.h"

namespace tests {

/// Host memory behind the interface of a device; as `cuda` it is one that the host may only copy from and to.
class MemoryDevice final : public tensor::Device {
 public:
  explicit MemoryDevice(tensor::DeviceKind kind) : Device(nullptr), kind_(kind) {}

  tensor::DeviceKind kind() const override { return kind_; }
  std::string describe() const override { return "memory"; }
  void copy_from_host(const void* host, tensor::Tensor& to) override {
    std::memcpy(to.raw(), host, static_cast<size_t>(to.bytes()));
    ++num_copies;
  }
  void copy_to_host(const tensor::Tensor& from, void* host) override {
    std::memcpy(host, from.raw(), static_cast<size_t>(from.bytes()));
    ++num_copies;
  }
  void copy(const tensor::Tensor&, tensor::Tensor&) override {}
  void zero(tensor::Tensor&) override {}
  void synchronize() override {}
  double peak_flops(tensor::Dtype) override { return 1; }

  int num_copies = 0;

 private:
  tensor::DeviceKind kind_;
};

/// Named tensors with their memory, filled with every byte value, so that NaNs with payloads are among them.
class StateOfARun {
 public:
  explicit StateOfARun(tensor::DeviceKind kind = tensor::DeviceKind::cpu) : device_(kind) {}

  void add(const std::string& name, tensor::Shape shape, tensor::Dtype dtype) {
    auto& bytes = memory_.emplace_back(static_cast<size_t>(shape.numel() * tensor::size_of(dtype)) + 1);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 167 + i / 256 + memory_.size());
    auto& tensor = tensors_.emplace_back(tensor::Tensor::view_of(bytes.data(), shape, dtype, device_));
    named_.push_back({name, &tensor});
  }
  void clear() {
    for (auto& bytes : memory_) std::fill(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  }
  tensor::Tensor& at(size_t index) { return tensors_[index]; }
  std::vector<checkpoint::NamedTensor>& named() { return named_; }
  MemoryDevice& device() { return device_; }

  std::vector<std::string> bytes() const {
    std::vector<std::string> all;
    for (const auto& tensor : tensors_) {
      all.emplace_back(static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes()));
    }
    return all;
  }

 private:
  MemoryDevice device_;
  std::deque<std::vector<unsigned char>> memory_;
  std::deque<tensor::Tensor> tensors_;
  std::vector<checkpoint::NamedTensor> named_;
};

/// One tensor of each dtype, an empty one, and one large enough to start on a page of the file.
inline void fill(StateOfARun& state) {
  state.add("weights/layers.0.attention.q.weight", {7, 5}, tensor::Dtype::bf16);
  state.add("weights/layers.1.attention.q.weight", {300, 256}, tensor::Dtype::fp32);
  state.add("master/layers.0.attention.q.weight", {7, 5}, tensor::Dtype::fp32);
  state.add("exp_avg/layers.0.norm.weight", {2, 3, 2, 3}, tensor::Dtype::fp64);
  state.add("exp_avg/empty", {0, 4}, tensor::Dtype::fp32);
  state.add("counts/tokens", {3}, tensor::Dtype::int64);
  state.add("counts/experts", {65}, tensor::Dtype::int32);
}

inline checkpoint::RunInfo run_info(int64_t step = 100) {
  return {{step, step * 32, step * 32 * 256, 0xfedcba9876543210u}, "[run]\nseed = 1\n", "trainer 0.1.0"};
}

}  // namespace tests
