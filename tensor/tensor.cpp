#include "tensor/tensor.h"

namespace tensor {

Tensor::Tensor(PoolBlock block, Shape shape, Dtype dtype, Device& device)
    : block_(std::move(block)),
      data_(block_.data()),
      shape_(shape),
      row_stride_(shape.row_numel()),
      dtype_(dtype),
      device_(&device) {}

Tensor Tensor::view_of(void* data, Shape shape, Dtype dtype, Device& device) {
  Tensor view;
  view.data_ = data;
  view.shape_ = shape;
  view.row_stride_ = shape.row_numel();
  view.dtype_ = dtype;
  view.device_ = &device;
  return view;
}

Tensor Tensor::view() const {
  if (!*this) return {};
  Tensor same = view_of(data_, shape_, dtype_, *device_);
  same.row_stride_ = row_stride_;
  return same;
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  CHECK(0 <= begin && begin <= end && end <= dim(0), "rows [{}, {}) lie inside {}", begin, end, shape_.str());
  Tensor part = view();
  part.data_ = static_cast<char*>(data_) + begin * row_stride_ * size_of(dtype_);
  part.shape_ = shape_.with(0, end - begin);
  return part;
}

Tensor Tensor::columns(int64_t begin, int64_t end) const {
  CHECK(shape_.num_dims() == 2 && 0 <= begin && begin <= end && end <= dim(1), "columns [{}, {}) lie inside {}", begin,
        end, shape_.str());
  Tensor part = view();
  part.data_ = static_cast<char*>(data_) + begin * size_of(dtype_);
  part.shape_ = shape_.with(1, end - begin);
  return part;
}

Tensor Tensor::reshaped(Shape shape) const {
  CHECK(shape.numel() == numel(), "{} and {} hold the same number of elements", shape.str(), shape_.str());
  Tensor other = view();
  other.shape_ = shape;
  if (is_contiguous()) {
    other.row_stride_ = shape.row_numel();
  } else {
    CHECK(shape[0] == dim(0), "rows lie apart in {}, so dim 0 stays", shape_.str());
  }
  return other;
}

}  // namespace tensor
