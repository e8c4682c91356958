#pragma once
/// Elementwise loops over tensors of one shape whose rows may lie apart.

#include <initializer_list>

#include "tensor/cpu/threads.h"
#include "tensor/tensor.h"

namespace tensor::cpu {

/// Elements that lie side by side in every operand: columns [column, column + size) of a row. Where nothing lies
/// apart, the whole tensor counts as one row, and threads split it.
struct Run {
  int64_t row = 0, column = 0, size = 0;

  template <class T>
  T* of(Tensor& x) const {
    return x.data<T>() + row * x.row_stride() + column;
  }
  template <class T>
  const T* of(const Tensor& x) const {
    return x.data<T>() + row * x.row_stride() + column;
  }
};

/// Calls body(run) over threads until every element of `first` has been in one run. All operands have its shape.
template <class Body>
void for_each_run(const Tensor& first, std::initializer_list<const Tensor*> others, const Body& body) {
  bool is_contiguous = first.is_contiguous();
  for (const Tensor* x : others) {
    CHECK(x->shape() == first.shape(), "operands have one shape, not {} and {}", first.shape().str(), x->shape().str());
    is_contiguous = is_contiguous && x->is_contiguous();
  }
  if (is_contiguous) {
    parallel_for(first.numel(), kElementsPerThread, [&](int64_t begin, int64_t end) {
      body(Run{0, begin, end - begin});
    });
    return;
  }
  const int64_t row_numel = first.shape().row_numel();
  parallel_for_rows(first.dim(0), row_numel, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(Run{row, 0, row_numel});
  });
}

}  // namespace tensor::cpu
