#include "tensor/device.h"

namespace tensor {

Tensor Device::allocate(Shape shape, Dtype dtype, MemoryCategory category) {
  return Tensor(pool_->allocate(shape.numel() * size_of(dtype), category), shape, dtype, *this);
}

}  // namespace tensor
