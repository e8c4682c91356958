#include <omp.h>

#include <cmath>

#include "tensor/cpu/attention_blocks.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/scratch.h"

namespace tensor::cpu {

namespace {

constexpr int64_t kBlockQueries = 128;
constexpr int64_t kTiles = kBlockQueries / kTileRows;

/// Everything one call reads and writes.
struct BackwardCall {
  const AttentionShape shape;
  const Tensor &q, &k, &v, &o, &lse, &d_o;
  const AttentionMask& mask;
  double scale;
  Tensor &dq, &dk, &dv;
};

/// The queries of one head of one sequence, [padded_queries, width] each, and what they saw.
template <class C>
struct QueryHead {
  C *q, *d_o, *dq;  ///< q is multiplied by scale * log2(e); dq lacks the factor `scale`
  C* lse;           ///< times log2(e); infinity for queries that see nothing, which makes their probabilities 0
  C* delta;         ///< sum of d_o * o

  static int64_t padded_queries(const AttentionShape& shape) {
    return num_blocks(shape.num_queries, kBlockQueries) * kBlockQueries;
  }
  static int64_t scratch_numel(const AttentionShape& shape) {
    return padded_queries(shape) * (3 * lanes_up<C>(shape.head_dim) + 2);
  }
  QueryHead(const AttentionShape& shape, Carver<C>& scratch)
      : q(scratch.take(padded_queries(shape) * lanes_up<C>(shape.head_dim))),
        d_o(scratch.take(padded_queries(shape) * lanes_up<C>(shape.head_dim))),
        dq(scratch.take(padded_queries(shape) * lanes_up<C>(shape.head_dim))),
        lse(scratch.take(padded_queries(shape))),
        delta(scratch.take(padded_queries(shape))) {}
};

template <class C, class T>
C dot(const T* a, const T* b, int64_t n) {
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += load(a[i]) * load(b[i]);
  return sum;
}

template <class T>
void load_queries(const BackwardCall& call, int64_t sequence, int64_t head, QueryHead<compute_t<T>>& to) {
  using C = compute_t<T>;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  const AttentionShape& shape = call.shape;
  const int64_t first = sequence * shape.num_queries, padded = QueryHead<C>::padded_queries(shape);
  const HeadRows<const T> o(call.o, first, head), d_o(call.d_o, first, head);
  pack<C, T>({call.q, first, head}, 0, shape.num_queries, padded, static_cast<C>(call.scale * kLog2E), to.q);
  pack<C, T>(d_o, 0, shape.num_queries, padded, C{1}, to.d_o);
  std::fill(to.dq, to.dq + padded * lanes_up<C>(shape.head_dim), C{0});
  std::fill(to.lse, to.lse + padded, kInfinity);
  std::fill(to.delta, to.delta + padded, C{0});
  for (int64_t i = 0; i < shape.num_queries; ++i) {
    const C lse = call.lse.data<C>()[(first + i) * shape.heads + head];
    to.lse[i] = lse == -kInfinity ? kInfinity : lse * static_cast<C>(kLog2E);
    to.delta[i] = dot<C>(o[i], d_o[i], shape.head_dim);
  }
}

/// A block of keys and values of one head, and their gradients.
template <class C>
struct KeyBlock {
  C *k, *k_transposed, *v_transposed;  // [kBlockKeys, width], [width, kBlockKeys] twice
  C *dk, *dv;                          // [kBlockKeys, width]; dk lacks the factor ln(2) that q's log2(e) asks for
  C* unpacked;                         // scratch for v

  static int64_t scratch_numel(const AttentionShape& shape) { return 6 * kBlockKeys * lanes_up<C>(shape.head_dim); }
  KeyBlock(const AttentionShape& shape, Carver<C>& scratch) {
    for (C** part : {&k, &k_transposed, &v_transposed, &dk, &dv, &unpacked}) {
      *part = scratch.take(kBlockKeys * lanes_up<C>(shape.head_dim));
    }
  }

  template <class T>
  void load(const HeadRows<const T>& from_k, const HeadRows<const T>& from_v, int64_t begin, int64_t count) {
    const int64_t width = lanes_up<C>(from_k.dim);
    pack<C, T>(from_k, begin, count, kBlockKeys, C{1}, k);
    pack<C, T>(from_v, begin, count, kBlockKeys, C{1}, unpacked);
    transpose_block(k, width, k_transposed);
    transpose_block(unpacked, width, v_transposed);
    std::fill(dk, dk + kBlockKeys * width, C{0});
    std::fill(dv, dv + kBlockKeys * width, C{0});
  }
};

/// rows [begin, begin + count) of `to` = factor * from [count, lanes_up(dim)].
template <class C, class T>
void unpack(const C* from, int64_t begin, int64_t count, C factor, const HeadRows<T>& to) {
  for (int64_t i = 0; i < count; ++i, from += lanes_up<C>(to.dim)) {
    T* const row = to[begin + i];
#pragma omp simd
    for (int64_t c = 0; c < to.dim; ++c) store(row[c], factor * from[c]);
  }
}

/// Probabilities p and score gradients ds [kBlockQueries, kBlockKeys] of a block of queries and one of keys.
template <class C>
class ScoreGradients {
 public:
  static constexpr int64_t kScratchNumel = 2 * kBlockQueries * kBlockKeys;
  ScoreGradients(int64_t head_dim, Carver<C>& scratch)
      : head_dim_(head_dim),
        width_(lanes_up<C>(head_dim)),
        p_(scratch.take(kBlockQueries * kBlockKeys)),
        ds_(scratch.take(kBlockQueries * kBlockKeys)) {}

  /// Adds what the queries [begin, ...) and the keys give each other to dq, dk and dv.
  void run(const QueryView<C>* views, int64_t num_tiles, const KeyPositions<C>& positions, const QueryHead<C>& queries,
           int64_t begin, const KeyBlock<C>& keys) {
    bool sees_any = false;
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      seen_[tile] = visible_keys(views[tile], positions);
      sees_any = sees_any || !seen_[tile].empty();
    }
    if (!sees_any) return;
    for (int64_t tile = 0; tile < num_tiles; ++tile) {
      if (!seen_[tile].empty()) differentiate(tile, views[tile], positions, queries, begin, keys);
      if (!seen_[tile].is_whole_block()) clear_unseen(tile);
    }
    for (int64_t key = 0; key < kBlockKeys; key += kTileRows) add_to_keys(key, num_tiles, queries, begin, keys);
  }

 private:
  /// p, ds and dq of one tile of queries.
  void differentiate(int64_t tile, const QueryView<C>& view, const KeyPositions<C>& positions,
                     const QueryHead<C>& queries, int64_t begin, const KeyBlock<C>& keys) {
    const VisibleKeys& seen = seen_[tile];
    const int64_t row = tile * kTileRows, first = lanes_down<C>(seen.begin), end = lanes_up<C>(seen.end);
    const int64_t at = (begin + row) * width_;
    C *const p = p_ + row * kBlockKeys, *const ds = ds_ + row * kBlockKeys;
    multiply_tile<C, Left::by_rows>({queries.q + at, width_}, {keys.k_transposed + first, kBlockKeys},
                                    {p + first, kBlockKeys}, end - first, head_dim_, Write::overwrite);
    multiply_tile<C, Left::by_rows>({queries.d_o + at, width_}, {keys.v_transposed + first, kBlockKeys},
                                    {ds + first, kBlockKeys}, end - first, head_dim_, Write::overwrite);
    for (int64_t i = 0; i < kTileRows; ++i) {
      const C lse = queries.lse[begin + row + i], delta = queries.delta[begin + row + i];
      for (int64_t key = first; key < end; key += kLanes<C>) {
        Vector<C> probability = exp2_of_nonpositive(load_vector(p + i * kBlockKeys + key) - lse);
        Vector<C> gradient = probability * (load_vector(ds + i * kBlockKeys + key) - delta);
        if (seen.needs_mask) {
          const IntVector<C> visible = visible_lanes(view, i, positions, key);
          probability = visible ? probability : Vector<C>{};
          gradient = visible ? gradient : Vector<C>{};
        }
        store_vector(p + i * kBlockKeys + key, probability);
        store_vector(ds + i * kBlockKeys + key, gradient);
      }
    }
    multiply_tile<C, Left::by_rows>({ds + seen.begin, kBlockKeys}, {keys.k + seen.begin * width_, width_},
                                    {queries.dq + at, width_}, width_, seen.end - seen.begin, Write::accumulate);
  }

  /// Zeros where differentiate() did not write, because add_to_keys() reads whole tiles.
  void clear_unseen(int64_t tile) {
    const VisibleKeys& seen = seen_[tile];
    const int64_t first = seen.empty() ? kBlockKeys : lanes_down<C>(seen.begin), end = lanes_up<C>(seen.end);
    for (C* rows : {p_ + tile * kTileRows * kBlockKeys, ds_ + tile * kTileRows * kBlockKeys}) {
      for (int64_t i = 0; i < kTileRows; ++i, rows += kBlockKeys) {
        std::fill(rows, rows + first, C{0});
        if (!seen.empty()) std::fill(rows + end, rows + kBlockKeys, C{0});
      }
    }
  }

  /// dk and dv of keys [key, key + kTileRows): from the first to the last tile of queries that sees any of them.
  void add_to_keys(int64_t key, int64_t num_tiles, const QueryHead<C>& queries, int64_t begin,
                   const KeyBlock<C>& keys) const {
    const auto sees = [&](int64_t tile) { return seen_[tile].begin < key + kTileRows && key < seen_[tile].end; };
    int64_t first = 0, end = num_tiles;
    while (first < end && !sees(first)) ++first;
    while (first < end && !sees(end - 1)) --end;
    if (first == end) return;
    const int64_t row = first * kTileRows, num_rows = (end - first) * kTileRows, at = (begin + row) * width_;
    multiply_tile<C, Left::by_columns>({p_ + row * kBlockKeys + key, kBlockKeys}, {queries.d_o + at, width_},
                                       {keys.dv + key * width_, width_}, width_, num_rows, Write::accumulate);
    multiply_tile<C, Left::by_columns>({ds_ + row * kBlockKeys + key, kBlockKeys}, {queries.q + at, width_},
                                       {keys.dk + key * width_, width_}, width_, num_rows, Write::accumulate);
  }

  int64_t head_dim_, width_;
  C *p_, *ds_;
  VisibleKeys seen_[kTiles];
};

/// A thread's scratch for all queries that read one kv head of one sequence. That thread alone adds to its dk and dv,
/// in an order fixed by the shape.
template <class T>
class BackwardTask {
 public:
  using C = compute_t<T>;

  static int64_t scratch_numel(const AttentionShape& shape) {
    return shape.group * QueryHead<C>::scratch_numel(shape) + KeyBlock<C>::scratch_numel(shape) +
           ScoreGradients<C>::kScratchNumel;
  }
  BackwardTask(const BackwardCall& call, Carver<C> scratch)
      : call_(call), keys_(call.shape, scratch), scores_(call.shape.head_dim, scratch) {
    for (int64_t i = 0; i < call.shape.group; ++i) heads_.emplace_back(call.shape, scratch);
    views_.resize(static_cast<size_t>(num_blocks(call.shape.num_queries, kTileRows)));
  }

  void run(int64_t sequence, int64_t kv_head) {
    const AttentionShape& shape = call_.shape;
    const int64_t first_query = sequence * shape.num_queries, first_key = sequence * shape.num_keys;
    load_heads(sequence, kv_head);
    for (int64_t key = 0; key < shape.num_keys; key += kBlockKeys) {
      const int64_t count = std::min(kBlockKeys, shape.num_keys - key);
      keys_.template load<T>({call_.k, first_key, kv_head}, {call_.v, first_key, kv_head}, key, count);
      differentiate({call_.mask.key_positions.data<int32_t>() + first_key + key, count});
      unpack<C, T>(keys_.dk, key, count, static_cast<C>(kLn2), {call_.dk, first_key, kv_head});
      unpack<C, T>(keys_.dv, key, count, C{1}, {call_.dv, first_key, kv_head});
    }
    for (int64_t i = 0; i < shape.group; ++i) {
      unpack<C, T>(heads_[static_cast<size_t>(i)].dq, 0, shape.num_queries, static_cast<C>(call_.scale),
                   {call_.dq, first_query, kv_head * shape.group + i});
    }
  }

 private:
  void load_heads(int64_t sequence, int64_t kv_head) {
    const AttentionShape& shape = call_.shape;
    const int64_t first_query = sequence * shape.num_queries;
    for (int64_t i = 0; i < shape.group; ++i) {
      load_queries<T>(call_, sequence, kv_head * shape.group + i, heads_[static_cast<size_t>(i)]);
    }
    const int32_t* const last = call_.mask.query_positions.data<int32_t>() + first_query;
    const int32_t* const first = call_.mask.first_visible.data<int32_t>() + first_query;
    for (int64_t i = 0; i < shape.num_queries; i += kTileRows) {
      views_[static_cast<size_t>(i / kTileRows)] = QueryView<C>(last + i, first + i, shape.num_queries - i);
    }
  }

  /// The loaded keys against all queries of all heads.
  void differentiate(const KeyPositions<C>& positions) {
    const int64_t num_tiles = static_cast<int64_t>(views_.size());
    for (const QueryHead<C>& queries : heads_) {
      for (int64_t tile = 0; tile < num_tiles; tile += kTiles) {
        scores_.run(views_.data() + tile, std::min(kTiles, num_tiles - tile), positions, queries, tile * kTileRows,
                    keys_);
      }
    }
  }

  const BackwardCall& call_;
  KeyBlock<C> keys_;
  ScoreGradients<C> scores_;
  std::vector<QueryHead<C>> heads_;
  std::vector<QueryView<C>> views_;
};

}  // namespace

void CpuOps::attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o, const Tensor& lse,
                                const Tensor& d_o, const AttentionMask& mask, double scale, Tensor& dq, Tensor& dk,
                                Tensor& dv) {
  dispatch(q.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const BackwardCall call{AttentionShape(q, k, mask), q, k, v, o, lse, d_o, mask, scale, dq, dk, dv};
    const int64_t num_tasks = call.shape.num_sequences * call.shape.kv_heads;
    const int num_threads = static_cast<int>(std::clamp<int64_t>(num_tasks, 1, omp_get_max_threads()));
    const ThreadScratch<C> scratch(device(), num_threads, BackwardTask<T>::scratch_numel(call.shape));
#pragma omp parallel num_threads(num_threads)
    {
      BackwardTask<T> task(call, scratch.of(omp_get_thread_num()));
#pragma omp for schedule(dynamic)
      for (int64_t i = 0; i < num_tasks; ++i) task.run(i / call.shape.kv_heads, i % call.shape.kv_heads);
    }
  });
}

}  // namespace tensor::cpu
