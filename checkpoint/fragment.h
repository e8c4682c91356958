#pragma once
/// A piece of a logical tensor: what one rank keeps of it, and what one place in a shard holds.
///
/// Tensors are seen as matrices [rows, columns] (dim 0, all others). A box is a rectangle of one, a fragment the
/// elements [begin, end) of a box in row-major order: whatever tensor parallelism and ZeRO cut, this is its shape.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "parallel/parameter.h"

namespace checkpoint {

struct Box {
  int64_t first_row = 0, num_rows = 0;
  int64_t first_column = 0, num_columns = 0;

  int64_t numel() const { return num_rows * num_columns; }
  bool operator==(const Box&) const = default;
};

struct Fragment {
  int64_t tensor = 0;  ///< place in a list of tensors
  Box box;
  parallel::Range range;  ///< of the box

  int64_t numel() const { return range.size(); }
  bool operator==(const Fragment&) const = default;
};

/// Calls visit(begin in a, begin in b, count) for every run of elements that lie back to back in both; begins count
/// from the fragments' own first elements. Both are of the same tensor.
template <class Visit>
void for_each_overlap(const Fragment& a, const Fragment& b, const Visit& visit);

/// Elements in both.
int64_t overlap(const Fragment& a, const Fragment& b);

/// What both have, where that lies back to back in both.
struct Run {
  int64_t in_a = 0, in_b = 0, count = 0;
};
std::optional<Run> only_run(const Fragment& a, const Fragment& b);

// ---- how

namespace detail {

/// Columns of the tensor that a fragment has of a row of the tensor.
inline parallel::Range columns_in_row(const Fragment& fragment, int64_t row) {
  const int64_t row_begin = (row - fragment.box.first_row) * fragment.box.num_columns;
  const int64_t begin = std::max(fragment.range.begin, row_begin);
  const int64_t end = std::min(fragment.range.end, row_begin + fragment.box.num_columns);
  const int64_t shift = fragment.box.first_column - row_begin;
  return {begin + shift, std::max(begin, end) + shift};
}

inline parallel::Range rows_of(const Fragment& fragment) {
  if (fragment.range.size() <= 0) return {};
  const int64_t columns = fragment.box.num_columns;
  return {fragment.box.first_row + fragment.range.begin / columns,
          fragment.box.first_row + (fragment.range.end + columns - 1) / columns};
}

inline bool have_same_columns(const Fragment& a, const Fragment& b) {
  return a.box.first_column == b.box.first_column && a.box.num_columns == b.box.num_columns;
}

/// Of element (row, column), from the fragment's first.
inline int64_t place(const Fragment& fragment, int64_t row, int64_t column) {
  return (row - fragment.box.first_row) * fragment.box.num_columns + column - fragment.box.first_column -
         fragment.range.begin;
}

}  // namespace detail

template <class Visit>
void for_each_overlap(const Fragment& a, const Fragment& b, const Visit& visit) {
  const parallel::Range rows_a = detail::rows_of(a), rows_b = detail::rows_of(b);
  const int64_t first = std::max(rows_a.begin, rows_b.begin), last = std::min(rows_a.end, rows_b.end);
  if (first >= last) return;
  if (detail::have_same_columns(a, b)) {  // one run: rows follow one another in both
    const int64_t width = a.box.num_columns;
    const auto from_row_0 = [&](const Fragment& f) {
      return parallel::Range{f.range.begin + f.box.first_row * width, f.range.end + f.box.first_row * width};
    };
    const parallel::Range in_a = from_row_0(a), in_b = from_row_0(b);
    const int64_t begin = std::max(in_a.begin, in_b.begin), end = std::min(in_a.end, in_b.end);
    if (begin < end) visit(begin - in_a.begin, begin - in_b.begin, end - begin);
    return;
  }
  for (int64_t row = first; row < last; ++row) {
    const parallel::Range in_a = detail::columns_in_row(a, row), in_b = detail::columns_in_row(b, row);
    const int64_t begin = std::max(in_a.begin, in_b.begin), end = std::min(in_a.end, in_b.end);
    if (begin < end) visit(detail::place(a, row, begin), detail::place(b, row, begin), end - begin);
  }
}

inline int64_t overlap(const Fragment& a, const Fragment& b) {
  const auto in_row = [&](int64_t row) {
    const parallel::Range in_a = detail::columns_in_row(a, row), in_b = detail::columns_in_row(b, row);
    return std::max<int64_t>(0, std::min(in_a.end, in_b.end) - std::max(in_a.begin, in_b.begin));
  };
  const parallel::Range rows_a = detail::rows_of(a), rows_b = detail::rows_of(b);
  const int64_t first = std::max(rows_a.begin, rows_b.begin), end = std::min(rows_a.end, rows_b.end);
  if (first >= end) return 0;
  if (end - first == 1) return in_row(first);
  const int64_t num_inner = end - first - 2;  // rows that both have over the whole width of their boxes
  return in_row(first) + in_row(end - 1) + (num_inner > 0 ? num_inner * in_row(first + 1) : 0);
}

inline std::optional<Run> only_run(const Fragment& a, const Fragment& b) {
  const parallel::Range rows_a = detail::rows_of(a), rows_b = detail::rows_of(b);
  const int64_t num_rows = std::min(rows_a.end, rows_b.end) - std::max(rows_a.begin, rows_b.begin);
  if (num_rows > 1 && !detail::have_same_columns(a, b)) return {};
  std::optional<Run> run;
  for_each_overlap(a, b, [&](int64_t in_a, int64_t in_b, int64_t count) { run = {in_a, in_b, count}; });
  return run;
}

}  // namespace checkpoint
