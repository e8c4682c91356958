#pragma once
/// Sizes of a tensor, outermost dim first.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace tensor {

class Shape {
 public:
  static constexpr int kMaxDims = 4;

  Shape() = default;  ///< no dims, numel 0: the shape of an absent tensor
  Shape(std::initializer_list<int64_t> sizes);

  int num_dims() const { return num_dims_; }
  int64_t operator[](int dim) const { return sizes_[static_cast<size_t>(dim < 0 ? dim + num_dims_ : dim)]; }
  int64_t numel() const;
  int64_t row_numel() const;  ///< elements of one index of dim 0
  bool operator==(const Shape&) const = default;

  Shape with(int dim, int64_t size) const;  ///< the same shape with one dim changed
  std::string str() const;                  ///< "[4096, 384]"

 private:
  int num_dims_ = 0;
  std::array<int64_t, kMaxDims> sizes_{};
};

}  // namespace tensor
