#pragma once
/// Keys and values of the tokens a generated sequence has seen, per layer, of the heads of this rank.

#include <vector>

#include "tensor/device.h"
#include "tensor/tensor.h"

namespace model {

struct LayerCache {
  tensor::Tensor k, v;       ///< [capacity, kv_heads, head_dim]; the first `length` rows are filled
  tensor::Tensor positions;  ///< int32 [capacity]: 0, 1, 2, ...
  int64_t length = 0;
};

struct KvCache {
  std::vector<LayerCache> layers;
  int64_t length = 0;  ///< tokens seen

  /// One pair of tensors a layer, each of this shape.
  KvCache(int64_t num_layers, tensor::Shape shape, tensor::Dtype dtype, tensor::Device& device);
};

}  // namespace model
