#include "tensor/shape.h"

#include "tensor/error.h"

namespace tensor {

Shape::Shape(std::initializer_list<int64_t> sizes) : num_dims_(static_cast<int>(sizes.size())) {
  CHECK(sizes.size() <= kMaxDims, "a tensor has at most {} dims, not {}", kMaxDims, sizes.size());
  size_t dim = 0;
  for (const int64_t size : sizes) {
    CHECK(size >= 0, "dim {} has size {}", dim, size);
    sizes_[dim++] = size;
  }
}

int64_t Shape::numel() const { return num_dims_ == 0 ? 0 : sizes_[0] * row_numel(); }

int64_t Shape::row_numel() const {
  int64_t n = 1;
  for (int dim = 1; dim < num_dims_; ++dim) n *= sizes_[static_cast<size_t>(dim)];
  return n;
}

Shape Shape::with(int dim, int64_t size) const {
  Shape changed = *this;
  changed.sizes_[static_cast<size_t>(dim < 0 ? dim + num_dims_ : dim)] = size;
  return changed;
}

std::string Shape::str() const {
  std::string text = "[";
  for (int dim = 0; dim < num_dims_; ++dim) text += (dim ? ", " : "") + std::to_string((*this)[dim]);
  return text + "]";
}

}  // namespace tensor
