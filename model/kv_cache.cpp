#include "model/kv_cache.h"

#include <numeric>

namespace model {

using tensor::Dtype;
using tensor::MemoryCategory;

KvCache::KvCache(const ModelConfig& config, int64_t capacity, Dtype dtype, tensor::Device& device) {
  std::vector<int32_t> positions(static_cast<size_t>(capacity));
  std::iota(positions.begin(), positions.end(), 0);
  const tensor::Shape shape{capacity, config.kv_heads(), config.head_size()};
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    LayerCache& cache = layers.emplace_back();
    cache.k = device.allocate(shape, dtype, MemoryCategory::other);
    cache.v = device.allocate(shape, dtype, MemoryCategory::other);
    cache.positions = device.allocate({capacity}, Dtype::int32, MemoryCategory::other);
    device.copy_from_host(positions.data(), cache.positions);
  }
}

}  // namespace model
