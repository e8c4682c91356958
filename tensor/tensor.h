#pragma once
/// A block of memory with a shape and a dtype, on one device. It either owns its memory (a pool block, given back
/// on destruction) or is a view that must not outlive the owner. There is no tape and no reference count.
///
/// Elements are contiguous inside a row (one index of dim 0); rows may lie `row_stride()` elements apart, so that a
/// column range of a matrix (q inside a fused qkv) is a view too.

#include "tensor/dtype.h"
#include "tensor/error.h"
#include "tensor/pool.h"
#include "tensor/shape.h"

namespace tensor {

class Device;

class Tensor {
 public:
  Tensor() = default;  ///< absent: what an optional operand (no bias) is
  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  /// A tensor that owns `block`, which holds at least shape.numel() elements.
  Tensor(PoolBlock block, Shape shape, Dtype dtype, Device& device);
  /// A view of memory that somebody else owns.
  static Tensor view_of(void* data, Shape shape, Dtype dtype, Device& device);

  explicit operator bool() const { return shape_.num_dims() > 0; }  ///< false when absent
  const Shape& shape() const { return shape_; }
  int64_t dim(int index) const { return shape_[index]; }
  int64_t numel() const { return shape_.numel(); }
  int64_t bytes() const { return numel() * size_of(dtype_); }
  Dtype dtype() const { return dtype_; }
  Device& device() const { return *device_; }
  int64_t row_stride() const { return row_stride_; }  ///< elements between rows
  bool is_contiguous() const { return row_stride_ == shape_.row_numel() || shape_[0] <= 1; }

  void* raw() const { return data_; }
  template <class T>
  T* data() {
    CHECK(dtype_of<T> == dtype_, "element type is {}", to_string(dtype_));
    return static_cast<T*>(data_);
  }
  template <class T>
  const T* data() const {
    return const_cast<Tensor*>(this)->data<T>();
  }

  // Views share this tensor's memory and are writable; they must not outlive it.
  Tensor view() const;
  Tensor rows(int64_t begin, int64_t end) const;     ///< indices [begin, end) of dim 0
  Tensor columns(int64_t begin, int64_t end) const;  ///< columns [begin, end) of a matrix; rows stay apart
  /// The same elements in another shape. A tensor whose rows lie apart keeps dim 0 ([n, heads * d] -> [n, heads, d]).
  Tensor reshaped(Shape shape) const;

 private:
  PoolBlock block_;  // empty for views
  void* data_ = nullptr;
  Shape shape_;
  int64_t row_stride_ = 0;
  Dtype dtype_ = Dtype::fp32;
  Device* device_ = nullptr;
};

}  // namespace tensor
