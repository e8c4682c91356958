#include "model/kv_cache.h"

#include <numeric>

namespace model {

using tensor::Dtype;
using tensor::MemoryCategory;

KvCache::KvCache(int64_t num_layers, tensor::Shape shape, Dtype dtype, tensor::Device& device) {
  const int64_t capacity = shape[0];
  std::vector<int32_t> positions(static_cast<size_t>(capacity));
  std::iota(positions.begin(), positions.end(), 0);
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    LayerCache& cache = layers.emplace_back();
    cache.k = device.allocate(shape, dtype, MemoryCategory::other);
    cache.v = device.allocate(shape, dtype, MemoryCategory::other);
    cache.positions = device.allocate({capacity}, Dtype::int32, MemoryCategory::other);
    device.copy_from_host(positions.data(), cache.positions);
  }
}

}  // namespace model
