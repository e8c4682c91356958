#pragma once
/// What the forward and the backward pass of attention share: blocks of keys and queries copied out of the tensors
/// (converted to the type of the arithmetic C, head_dim padded with zeros to whole vectors), and which sees which.
///
/// Both passes walk tiles: kTileRows queries against one block of kBlockKeys keys.

#include <algorithm>
#include <limits>
#include <vector>

#include "tensor/cpu/convert.h"
#include "tensor/cpu/tile_product.h"
#include "tensor/tensor.h"

namespace tensor::cpu {

constexpr int64_t kBlockKeys = 64;
constexpr double kLog2E = 1.4426950408889634073599246810019;
constexpr double kLn2 = 0.69314718055994530941723212145818;

constexpr int64_t num_blocks(int64_t n, int64_t block) { return (n + block - 1) / block; }

/// Sizes of one call. Head h of a sequence reads kv head h / group.
struct AttentionShape {
  AttentionShape(const Tensor& q, const Tensor& k, const AttentionMask& mask)
      : num_sequences(mask.num_sequences),
        num_queries(q.dim(0) / mask.num_sequences),
        num_keys(k.dim(0) / mask.num_sequences),
        heads(q.dim(1)),
        kv_heads(k.dim(1)),
        group(heads / kv_heads),
        head_dim(q.dim(2)) {}

  int64_t num_sequences, num_queries, num_keys;  // queries and keys of one sequence
  int64_t heads, kv_heads, group, head_dim;
};

/// One head of one sequence inside [tokens, heads, head_dim].
template <class T>
struct HeadRows {
  HeadRows() = default;
  HeadRows(const Tensor& x, int64_t first_token, int64_t head)
      : data(static_cast<T*>(x.raw()) + first_token * x.row_stride() + head * x.dim(2)),
        stride(x.row_stride()),
        dim(x.dim(2)) {}
  T* operator[](int64_t token) const { return data + token * stride; }

  T* data = nullptr;
  int64_t stride = 0, dim = 0;
};

/// to [padded_count, lanes_up(dim)] = factor * from [count, dim], zeros around.
template <class C, class T>
void pack(const HeadRows<const T>& from, int64_t begin, int64_t count, int64_t padded_count, C factor, C* to) {
  const int64_t width = lanes_up<C>(from.dim);
  for (int64_t i = 0; i < count; ++i, to += width) {
    const T* const row = from[begin + i];
#pragma omp simd
    for (int64_t c = 0; c < from.dim; ++c) to[c] = factor * load(row[c]);
    std::fill(to + from.dim, to + width, C{0});
  }
  std::fill(to, to + (padded_count - count) * width, C{0});
}

/// to [width, kBlockKeys] = transpose of from [kBlockKeys, width]; width is a multiple of the lanes.
template <class C>
void transpose_block(const C* from, int64_t width, C* to) {
  for (int64_t key = 0; key < kBlockKeys; key += kLanes<C>) {
    for (int64_t c = 0; c < width; c += kLanes<C>) {
      Vector<C> square[kLanes<C>];
      for (int64_t i = 0; i < kLanes<C>; ++i) square[i] = load_vector(from + (key + i) * width + c);
      transpose_square<C>(square);
      for (int64_t i = 0; i < kLanes<C>; ++i) store_vector(to + (c + i) * kBlockKeys + key, square[i]);
    }
  }
}

/// Positions of a block of keys; keys past the end lie at a position that no query reaches.
template <class C>
struct KeyPositions {
  KeyPositions(const int32_t* from, int64_t count) {
    for (int64_t i = 0; i < kBlockKeys; ++i) {
      at[i] = i < count ? from[i] : std::numeric_limits<int32_t>::max();
      min = std::min(min, at[i]);
      max = std::max(max, at[i]);
      is_sorted = is_sorted && (i == 0 || at[i - 1] <= at[i]);
    }
  }

  alignas(64) LaneInt<C> at[kBlockKeys];
  LaneInt<C> min = std::numeric_limits<int32_t>::max(), max = std::numeric_limits<int32_t>::min();
  bool is_sorted = true;
};

/// What kTileRows queries see; queries past the end see nothing.
template <class C>
struct QueryView {
  QueryView() = default;
  QueryView(const int32_t* positions, const int32_t* first_visible, int64_t count) {
    for (int64_t i = 0; i < kTileRows; ++i) {
      last[i] = i < count ? positions[i] : std::numeric_limits<int32_t>::min();
      first[i] = i < count ? first_visible[i] : std::numeric_limits<int32_t>::max();
    }
    for (int64_t i = 0; i < std::min<int64_t>(count, kTileRows); ++i) {
      min_last = std::min(min_last, last[i]);
      max_last = std::max(max_last, last[i]);
      min_first = std::min(min_first, first[i]);
      max_first = std::max(max_first, first[i]);
    }
  }

  LaneInt<C> first[kTileRows] = {}, last[kTileRows] = {};  // key positions that query i sees, both included
  LaneInt<C> min_first = std::numeric_limits<int32_t>::max(), max_first = std::numeric_limits<int32_t>::min();
  LaneInt<C> min_last = std::numeric_limits<int32_t>::max(), max_last = std::numeric_limits<int32_t>::min();
};

/// Keys [begin, end) of a block hold all that a tile's queries see.
struct VisibleKeys {
  int64_t begin = 0, end = 0;
  bool needs_mask = false;

  bool empty() const { return begin >= end; }
  bool is_whole_block() const { return begin == 0 && end == kBlockKeys; }
};

template <class C>
VisibleKeys visible_keys(const QueryView<C>& queries, const KeyPositions<C>& keys) {
  if (queries.max_last < keys.min || keys.max < queries.min_first) return {};
  if (queries.max_first <= keys.min && keys.max <= queries.min_last) return {0, kBlockKeys, false};
  if (!keys.is_sorted) return {0, kBlockKeys, true};
  const auto *const first = keys.at, *const last = keys.at + kBlockKeys;
  return {std::lower_bound(first, last, queries.min_first) - first,
          std::upper_bound(first, last, queries.max_last) - first, true};
}

/// All ones in the lanes of keys [key, key + lanes) that query i of the tile sees.
template <class C>
IntVector<C> visible_lanes(const QueryView<C>& queries, int64_t i, const KeyPositions<C>& keys, int64_t key) {
  const auto positions = *reinterpret_cast<const IntVector<C>*>(keys.at + key);
  return (positions >= queries.first[i]) & (positions <= queries.last[i]);
}

}  // namespace tensor::cpu
