#pragma once
/// What ranks want of a checkpoint, and where it goes.

#include <map>
#include <span>
#include <vector>

#include "checkpoint/host_bytes.h"
#include "checkpoint/shard.h"
#include "checkpoint/wire.h"

namespace checkpoint {

/// Wanted values, filled piece by piece: copied into it, or put in place by somebody else and marked.
class Target {
 public:
  Target(const LocalFragment& wanted, int64_t tensor)
      : values_(wanted.values.view()), host_(values_), fragment_(wanted.fragment) {
    fragment_.tensor = tensor;
  }

  const Fragment& fragment() const { return fragment_; }
  tensor::Dtype dtype() const { return values_.dtype(); }
  std::byte* place(int64_t begin) const { return host_.data() + begin * tensor::size_of(dtype()); }
  void fill(int64_t begin, const void* values, tensor::Dtype dtype, int64_t count);
  void mark(int64_t count) { num_filled_ += count; }
  bool is_complete() const { return num_filled_ == fragment_.numel(); }
  void finish() { host_.upload(values_); }

 private:
  tensor::Tensor values_;
  HostBytes host_;
  Fragment fragment_;
  int64_t num_filled_ = 0;
};

/// What every rank wants: all ranks know the same.
class Wants {
 public:
  struct Want {
    int rank;
    size_t index;  ///< in the rank's own list
    Fragment fragment;
  };

  Wants(const Wire& wire, std::span<const Target> own);  ///< all ranks together
  /// Of a block's tensor: by rank, then in each rank's order.
  const std::vector<Want>& of(const Fragment& part) const;

 private:
  std::map<int64_t, std::vector<Want>> of_tensor_;
};

}  // namespace checkpoint
