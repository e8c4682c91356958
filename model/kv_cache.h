#pragma once
/// Keys and values of the tokens a generated sequence has seen, per layer.

#include <vector>

#include "model/config.h"

namespace model {

struct LayerCache {
  tensor::Tensor k, v;       ///< [capacity, kv_heads, head_dim]; the first `length` rows are filled
  tensor::Tensor positions;  ///< int32 [capacity]: 0, 1, 2, ...
  int64_t length = 0;
};

struct KvCache {
  std::vector<LayerCache> layers;
  int64_t length = 0;  ///< tokens seen

  KvCache(const ModelConfig& config, int64_t capacity, tensor::Dtype dtype, tensor::Device& device);
};

}  // namespace model
