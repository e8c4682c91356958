#pragma once
/// The rows of a tensor that operations over the last dim walk: [tokens, dim], or [tokens, heads, dim] where every head
/// of every token is a row. Tokens may lie apart.

#include "tensor/tensor.h"

namespace tensor::cpu {

template <class T>
class Rows {
 public:
  explicit Rows(const Tensor& x)
      : data_(static_cast<T*>(x.raw())),
        per_token_(x.shape().num_dims() == 3 ? x.dim(1) : 1),
        dim_(x.dim(-1)),
        stride_(x.row_stride()),
        count_(x.dim(0) * per_token_) {
    CHECK(x.dtype() == dtype_of<std::remove_const_t<T>>, "element type is {}", to_string(x.dtype()));
  }

  int64_t count() const { return count_; }
  int64_t dim() const { return dim_; }
  T* operator[](int64_t row) const {
    if (per_token_ == 1) return data_ + row * stride_;
    return data_ + row / per_token_ * stride_ + row % per_token_ * dim_;
  }

 private:
  T* data_;
  int64_t per_token_;
  int64_t dim_;
  int64_t stride_;  // between tokens
  int64_t count_;
};

}  // namespace tensor::cpu
