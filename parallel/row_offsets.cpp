#include "parallel/row_offsets.h"

#include <algorithm>
#include <numeric>

namespace parallel {

using tensor::Tensor;

std::vector<int64_t> row_offsets(const std::vector<int64_t>& rows, int size, const Tensor& x) {
  CHECK(static_cast<int>(rows.size()) == size, "{} row counts for {} ranks", rows.size(), size);
  CHECK(std::all_of(rows.begin(), rows.end(), [](int64_t n) { return n >= 0; }), "row counts for {} are not negative",
        x.shape().str());
  std::vector<int64_t> offsets(rows.size() + 1, 0);
  std::partial_sum(rows.begin(), rows.end(), offsets.begin() + 1);
  CHECK(offsets.back() == x.dim(0), "row counts add up to {}, not to the rows of {}", offsets.back(), x.shape().str());
  for (int64_t& offset : offsets) offset *= x.shape().row_numel();
  return offsets;
}

std::vector<int64_t> part_offsets(const std::vector<int64_t>& rows, int rank, int size, const Tensor& part,
                                  const Tensor& whole) {
  const std::vector<int64_t> offsets = row_offsets(rows, size, whole);
  const int64_t own_rows = rows[static_cast<size_t>(rank)];
  CHECK(
      part.dtype() == whole.dtype() && part.dim(0) == own_rows && part.shape().row_numel() == whole.shape().row_numel(),
      "the part {} {} is {} rows of {} {}", to_string(part.dtype()), part.shape().str(), own_rows,
      to_string(whole.dtype()), whole.shape().str());
  return offsets;
}

}  // namespace parallel
