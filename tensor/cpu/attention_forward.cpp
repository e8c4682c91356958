#include <omp.h>

#include <cmath>

#include "tensor/cpu/attention_blocks.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/scratch.h"

namespace tensor::cpu {

namespace {

constexpr int64_t kBlockQueries = 64;  // a task: its queries reuse each block of keys from the cache

/// Keys and values of all heads in blocks of kBlockKeys: k transposed [head_dim, kBlockKeys], v [kBlockKeys, width].
template <class T>
class PackedKeys {
 public:
  using C = compute_t<T>;

  PackedKeys(Device& device, const AttentionShape& shape, const Tensor& k, const Tensor& v)
      : width_(lanes_up<C>(shape.head_dim)),
        blocks_(num_blocks(shape.num_keys, kBlockKeys)),
        num_heads_(shape.num_sequences * shape.kv_heads),
        memory_(
            device.allocate({num_heads_ * blocks_, 2, width_ * kBlockKeys}, dtype_of<C>, MemoryCategory::workspace)),
        data_(memory_.data<C>()) {
    const ThreadScratch<C> scratch(device, omp_get_max_threads(), width_ * kBlockKeys);
#pragma omp parallel for schedule(static)
    for (int64_t task = 0; task < num_heads_ * blocks_; ++task) {
      const int64_t head = task / blocks_, block = task % blocks_, first_token = head / shape.kv_heads * shape.num_keys;
      const int64_t begin = block * kBlockKeys, count = std::min(kBlockKeys, shape.num_keys - begin);
      C* const rows = scratch.of(omp_get_thread_num()).take(width_ * kBlockKeys);
      pack<C, T>({k, first_token, head % shape.kv_heads}, begin, count, kBlockKeys, C{1}, rows);
      transpose_block(rows, width_, at(head, block));
      pack<C, T>({v, first_token, head % shape.kv_heads}, begin, count, kBlockKeys, C{1}, at(head, block) + v_offset());
    }
  }

  const C* keys(int64_t head, int64_t block) const { return at(head, block); }
  const C* values(int64_t head, int64_t block) const { return at(head, block) + v_offset(); }

 private:
  C* at(int64_t head, int64_t block) const { return data_ + (head * blocks_ + block) * 2 * v_offset(); }
  int64_t v_offset() const { return width_ * kBlockKeys; }

  int64_t width_, blocks_, num_heads_;
  Tensor memory_;
  C* data_;
};

/// Online softmax of a tile's queries (arXiv 1805.02867), in powers of two: scores arrive multiplied by log2(e).
template <class C>
struct TileSoftmax {
  C max[kTileRows];
  Vector<C> sum[kTileRows];  // lane by lane; added up at the end

  TileSoftmax() {
    std::fill(max, max + kTileRows, -std::numeric_limits<C>::infinity());
    std::fill(sum, sum + kTileRows, Vector<C>{});
  }

  /// Turns the scores of query i into exp2(score - max). Returns what earlier results of the query shrink by.
  C absorb(int64_t i, C* scores, int64_t count) {
    Vector<C> highest = load(scores);
    for (int64_t key = kLanes<C>; key < count; key += kLanes<C>) {
      const Vector<C> score = load(scores + key);
      highest = score > highest ? score : highest;
    }
    const C old_max = max[i];
    max[i] = std::max(old_max, max_of_lanes<C>(highest));
    const C reference = std::isinf(max[i]) && max[i] < 0 ? C{0} : max[i];  // nothing seen so far: all become 0
    C shrink = 1;
    if (max[i] != old_max) {
      shrink = exp2_of_nonpositive(broadcast(old_max - reference))[0];
      sum[i] *= shrink;
    }
    for (int64_t key = 0; key < count; key += kLanes<C>) {
      const Vector<C> p = exp2_of_nonpositive(load(scores + key) - reference);
      store(scores + key, p);
      sum[i] += p;
    }
    return shrink;
  }
};

template <class C>
void mask_scores(const QueryView<C>& queries, const KeyPositions<C>& keys, int64_t begin, int64_t end, C* scores) {
  const Vector<C> unseen = broadcast(-std::numeric_limits<C>::infinity());
  for (int64_t i = 0; i < kTileRows; ++i) {
    for (int64_t key = begin; key < end; key += kLanes<C>) {
      C* const at = scores + i * kBlockKeys + key;
      store(at, visible_lanes(queries, i, keys, key) ? load(at) : unseen);
    }
  }
}

template <class C>
void scale_row(C* row, int64_t width, C factor) {
  for (int64_t c = 0; c < width; c += kLanes<C>) store(row + c, load(row + c) * factor);
}

/// The queries of one head that a task works on, kTileRows at a time.
template <class T>
class QueryBlock {
 public:
  using C = compute_t<T>;

  static int64_t scratch_numel(const AttentionShape& shape) { return 2 * kBlockQueries * lanes_up<C>(shape.head_dim); }
  QueryBlock(const AttentionShape& shape, Carver<C> scratch)
      : shape_(shape),
        width_(lanes_up<C>(shape.head_dim)),
        q_(scratch.take(kBlockQueries * width_)),
        o_(scratch.take(kBlockQueries * width_)) {}

  void start(const HeadRows<const T>& q, int64_t begin, int64_t count, C factor) {
    count_ = count;
    pack<C, T>(q, begin, count, kBlockQueries, factor, q_);
    std::fill(o_, o_ + kBlockQueries * width_, C{0});
    std::fill(softmax_, softmax_ + kTiles, TileSoftmax<C>());
  }

  void set_positions(const int32_t* last, const int32_t* first) {
    for (int64_t i = 0; i < count_; i += kTileRows)
      views_[i / kTileRows] = QueryView<C>(last + i, first + i, count_ - i);
  }

  void attend(const KeyPositions<C>& keys, const C* k, const C* v) {
    for (int64_t tile = 0; tile * kTileRows < count_; ++tile) attend(tile, keys, k, v);
  }

  /// lse [queries, heads] at this head.
  void finish(const HeadRows<T>& o, C* lse, int64_t lse_stride, int64_t begin) const {
    for (int64_t i = 0; i < count_; ++i) {
      const TileSoftmax<C>& softmax = softmax_[i / kTileRows];
      const C total = sum_of_lanes<C>(softmax.sum[i % kTileRows]), max = softmax.max[i % kTileRows];
      const bool saw_nothing = total == 0;
      const C inverse = saw_nothing ? C{0} : 1 / total;
      T* const to = o[begin + i];
      for (int64_t c = 0; c < shape_.head_dim; ++c) to[c] = static_cast<T>(o_[i * width_ + c] * inverse);
      lse[(begin + i) * lse_stride] =
          saw_nothing ? -std::numeric_limits<C>::infinity() : (max + std::log2(total)) * static_cast<C>(kLn2);
    }
  }

 private:
  void attend(int64_t tile, const KeyPositions<C>& keys, const C* k, const C* v) {
    const QueryView<C>& queries = views_[tile];
    const VisibleKeys seen = visible_keys(queries, keys);
    if (seen.empty()) return;
    alignas(64) C scores[kTileRows * kBlockKeys];
    const int64_t begin = lanes_down<C>(seen.begin), end = lanes_up<C>(seen.end);
    multiply_tile<C, Left::by_rows>({q_ + tile * kTileRows * width_, width_}, {k + begin, kBlockKeys},
                                    {scores + begin, kBlockKeys}, end - begin, shape_.head_dim, Write::overwrite);
    if (seen.needs_mask) mask_scores(queries, keys, begin, end, scores);
    C* const o = o_ + tile * kTileRows * width_;
    for (int64_t i = 0; i < kTileRows; ++i) {
      const C shrink = softmax_[tile].absorb(i, scores + i * kBlockKeys + begin, end - begin);
      if (shrink != 1) scale_row(o + i * width_, width_, shrink);
    }
    multiply_tile<C, Left::by_rows>({scores + seen.begin, kBlockKeys}, {v + seen.begin * width_, width_}, {o, width_},
                                    width_, seen.end - seen.begin, Write::accumulate);
  }

  static constexpr int64_t kTiles = kBlockQueries / kTileRows;

  const AttentionShape& shape_;
  int64_t width_;
  int64_t count_ = 0;
  C *q_, *o_;
  QueryView<C> views_[kTiles];
  TileSoftmax<C> softmax_[kTiles];
};

/// Everything one call reads and writes; run() is one task.
template <class T>
struct ForwardCall {
  using C = compute_t<T>;

  const AttentionShape& shape;
  const AttentionMask& mask;
  const Tensor& q;
  const PackedKeys<T>& packed;
  C factor;  // scale * log2(e)
  Tensor& o;
  Tensor& lse;

  /// Queries [block * kBlockQueries, ...) of a head of a sequence.
  void run(int64_t sequence, int64_t head, int64_t block, QueryBlock<T>& queries) const {
    const int64_t first_query = sequence * shape.num_queries, first_key = sequence * shape.num_keys;
    const int64_t begin = block * kBlockQueries, count = std::min(kBlockQueries, shape.num_queries - begin);
    const int32_t* const key_positions = mask.key_positions.data<int32_t>() + first_key;
    const int64_t kv_head = sequence * shape.kv_heads + head / shape.group;
    queries.start({q, first_query, head}, begin, count, factor);
    queries.set_positions(mask.query_positions.data<int32_t>() + first_query + begin,
                          mask.first_visible.data<int32_t>() + first_query + begin);
    for (int64_t key = 0; key < shape.num_keys; key += kBlockKeys) {
      const KeyPositions<C> keys(key_positions + key, std::min(kBlockKeys, shape.num_keys - key));
      queries.attend(keys, packed.keys(kv_head, key / kBlockKeys), packed.values(kv_head, key / kBlockKeys));
    }
    queries.finish({o, first_query, head}, lse.data<C>() + first_query * shape.heads + head, shape.heads, begin);
  }
};

}  // namespace

void CpuOps::attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, double scale,
                       Tensor& o, Tensor& lse) {
  dispatch(q.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const AttentionShape shape(q, k, mask);
    const PackedKeys<T> packed(device(), shape, k, v);
    const ForwardCall<T> call{shape, mask, q, packed, static_cast<C>(scale * kLog2E), o, lse};
    const ThreadScratch<C> scratch(device(), omp_get_max_threads(), QueryBlock<T>::scratch_numel(shape));
    const int64_t blocks = num_blocks(shape.num_queries, kBlockQueries), heads = shape.num_sequences * shape.heads;
#pragma omp parallel
    {
      QueryBlock<T> queries(shape, scratch.of(omp_get_thread_num()));
#pragma omp for schedule(dynamic)
      for (int64_t task = 0; task < blocks * heads; ++task) {
        // Last blocks first: under a causal mask they have the most to do.
        const int64_t block = blocks - 1 - task / heads, head = task % heads;
        call.run(head / shape.heads, head % shape.heads, block, queries);
      }
    }
  });
}

}  // namespace tensor::cpu
