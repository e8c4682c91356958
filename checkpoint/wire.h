#pragma once
/// Bytes and numbers between ranks, of any length: what saving and loading agree on. All ranks of the group call
/// together.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "tensor/device.h"

namespace checkpoint {

using Numbers = std::vector<int64_t>;

class Wire {
 public:
  Wire(parallel::Communicator& group, tensor::Device& device) : group_(group), device_(device) {}

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  bool is_root() const { return rank() == 0; }
  parallel::Communicator& group() const { return group_; }
  tensor::Device& device() const { return device_; }

  std::string from_root(const std::string& text) const;  ///< what rank 0 says
  Numbers from_root(const Numbers& numbers) const;
  std::vector<Numbers> gather(const Numbers& own) const;  ///< on rank 0, what each rank says; elsewhere nothing
  std::vector<std::string> gather(const std::string& own) const;
  std::vector<Numbers> all_gather(const Numbers& own) const;  ///< on every rank, what each says
  /// Rank 0 does it; where that throws a StorageError, every rank does.
  void on_root(const std::function<void()>& action) const;
  int64_t sum(int64_t own) const;

 private:
  tensor::Tensor upload(const Numbers& numbers) const;
  Numbers download(const tensor::Tensor& x) const;

  parallel::Communicator& group_;
  tensor::Device& device_;
};

}  // namespace checkpoint
