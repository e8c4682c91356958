#include <omp.h>

#include <cmath>
#include <vector>

#include "tensor/cpu/attention_blocks.h"
#include "tensor/cpu/cpu_ops.h"
#include "tensor/cpu/dispatch.h"
#include "tensor/cpu/scratch.h"

namespace tensor::cpu {

namespace {

constexpr int64_t kBlockQueries = 64;  // a task: its queries reuse each block of keys from the cache

/// Keys and values of one head, in blocks of kBlockKeys that are packed when first asked for: those of later queries
/// stay in the cache, those that nobody sees are never read.
template <class T>
class PackedKeys {
 public:
  using C = compute_t<T>;
  struct Block {
    const C* k;  ///< transposed [width, kBlockKeys]
    const C* v;  ///< [kBlockKeys, width]
  };

  static int64_t scratch_numel(const AttentionShape& shape) {
    return (2 * num_blocks(shape.num_keys, kBlockKeys) + 1) * kBlockKeys * lanes_up<C>(shape.head_dim);
  }
  PackedKeys(const AttentionShape& shape, Carver<C>& scratch)
      : num_keys_(shape.num_keys),
        width_(lanes_up<C>(shape.head_dim)),
        is_packed_(static_cast<size_t>(num_blocks(shape.num_keys, kBlockKeys))),
        unpacked_(scratch.take(kBlockKeys * width_)),
        packed_(scratch.take(2 * num_blocks(shape.num_keys, kBlockKeys) * kBlockKeys * width_)) {}

  void start(const HeadRows<const T>& k, const HeadRows<const T>& v) {
    k_ = k;
    v_ = v;
    std::fill(is_packed_.begin(), is_packed_.end(), 0);
  }

  Block block(int64_t index) {
    C* const k = packed_ + 2 * index * kBlockKeys * width_;
    C* const v = k + kBlockKeys * width_;
    char& is_packed = is_packed_[static_cast<size_t>(index)];
    if (!is_packed) {
      const int64_t begin = index * kBlockKeys, count = std::min(kBlockKeys, num_keys_ - begin);
      pack<C, T>(k_, begin, count, kBlockKeys, C{1}, unpacked_);
      transpose_block(unpacked_, width_, k);
      pack<C, T>(v_, begin, count, kBlockKeys, C{1}, v);
      is_packed = 1;
    }
    return {k, v};
  }

 private:
  int64_t num_keys_, width_;
  std::vector<char> is_packed_;
  C *unpacked_, *packed_;
  HeadRows<const T> k_, v_;
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

  /// Takes the largest of `count` new scores of every query into account, in `max`, `sum` and the outputs so far.
  void raise_max(const C* scores, int64_t count, C* o, int64_t width) {
    C highest[kTileRows];
    for (int64_t i = 0; i < kTileRows; ++i) highest[i] = max_of(scores + i * kBlockKeys, count);
    for (int64_t i = 0; i < kTileRows; ++i) {
      if (!(highest[i] > max[i])) continue;
      const C shrink = exp2_of_nonpositive(broadcast(max[i] - highest[i]))[0];
      max[i] = highest[i];
      sum[i] *= shrink;
      for (int64_t c = 0; c < width; c += kLanes<C>)
        store_vector(o + i * width + c, load_vector(o + i * width + c) * shrink);
    }
  }

  /// Scores become exp2(score - max), and part of the sum.
  void exponentiate(C* scores, int64_t count) {
    for (int64_t i = 0; i < kTileRows; ++i, scores += kBlockKeys) {
      const C reference = max[i] == -std::numeric_limits<C>::infinity() ? C{0} : max[i];  // nothing seen: all become 0
      Vector<C> total = sum[i];
      for (int64_t key = 0; key < count; key += kLanes<C>) {
        const Vector<C> p = exp2_of_nonpositive(load_vector(scores + key) - reference);
        store_vector(scores + key, p);
        total += p;
      }
      sum[i] = total;
    }
  }

 private:
  static C max_of(const C* scores, int64_t count) {
    Vector<C> highest = load_vector(scores);
    for (int64_t key = kLanes<C>; key < count; key += kLanes<C>) {
      const Vector<C> score = load_vector(scores + key);
      highest = score > highest ? score : highest;
    }
    return max_of_lanes<C>(highest);
  }
};

template <class C>
void mask_scores(const QueryView<C>& queries, const KeyPositions<C>& keys, int64_t begin, int64_t end, C* scores) {
  const Vector<C> unseen = broadcast(-std::numeric_limits<C>::infinity());
  for (int64_t i = 0; i < kTileRows; ++i) {
    for (int64_t key = begin; key < end; key += kLanes<C>) {
      C* const at = scores + i * kBlockKeys + key;
      store_vector(at, visible_lanes(queries, i, keys, key) ? load_vector(at) : unseen);
    }
  }
}

/// The queries of one head that a task works on, kTileRows at a time.
template <class T>
class QueryBlock {
 public:
  using C = compute_t<T>;

  static int64_t scratch_numel(const AttentionShape& shape) { return 2 * kBlockQueries * lanes_up<C>(shape.head_dim); }
  QueryBlock(const AttentionShape& shape, Carver<C>& scratch)
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

  /// The keys of a block, at `positions`, join what the queries have seen.
  void attend(const KeyPositions<C>& positions, PackedKeys<T>& keys, int64_t block) {
    for (int64_t tile = 0; tile * kTileRows < count_; ++tile) {
      const VisibleKeys seen = visible_keys(views_[tile], positions);
      if (!seen.empty()) attend(tile, seen, positions, keys.block(block));
    }
  }

  /// lse [queries, heads] at this head.
  void finish(const HeadRows<T>& o, C* lse, int64_t lse_stride, int64_t begin) const {
    for (int64_t i = 0; i < count_; ++i) {
      const TileSoftmax<C>& softmax = softmax_[i / kTileRows];
      const C total = sum_of_lanes<C>(softmax.sum[i % kTileRows]), max = softmax.max[i % kTileRows];
      const bool saw_nothing = total == 0;
      const C inverse = saw_nothing ? C{0} : 1 / total;
      T* const to = o[begin + i];
#pragma omp simd
      for (int64_t c = 0; c < shape_.head_dim; ++c) store(to[c], o_[i * width_ + c] * inverse);
      lse[(begin + i) * lse_stride] =
          saw_nothing ? -std::numeric_limits<C>::infinity() : (max + std::log2(total)) * static_cast<C>(kLn2);
    }
  }

 private:
  void attend(int64_t tile, const VisibleKeys& seen, const KeyPositions<C>& positions,
              const typename PackedKeys<T>::Block& keys) {
    alignas(64) C scores[kTileRows * kBlockKeys];
    const int64_t begin = lanes_down<C>(seen.begin), end = lanes_up<C>(seen.end), at = tile * kTileRows * width_;
    multiply_tile<C, Left::by_rows>({q_ + at, width_}, {keys.k + begin, kBlockKeys}, {scores + begin, kBlockKeys},
                                    end - begin, shape_.head_dim, Write::overwrite);
    if (seen.needs_mask) mask_scores(views_[tile], positions, begin, end, scores);
    softmax_[tile].raise_max(scores + begin, end - begin, o_ + at, width_);
    softmax_[tile].exponentiate(scores + begin, end - begin);
    multiply_tile<C, Left::by_rows>({scores + seen.begin, kBlockKeys}, {keys.v + seen.begin * width_, width_},
                                    {o_ + at, width_}, width_, seen.end - seen.begin, Write::accumulate);
  }

  static constexpr int64_t kTiles = kBlockQueries / kTileRows;

  const AttentionShape& shape_;
  int64_t width_;
  int64_t count_ = 0;
  C *q_, *o_;
  QueryView<C> views_[kTiles];
  TileSoftmax<C> softmax_[kTiles];
};

/// Everything one call reads and writes.
struct ForwardCall {
  const AttentionShape shape;
  const Tensor &q, &k, &v;
  const AttentionMask& mask;
  double scale;
  Tensor &o, &lse;
};

/// A thread's scratch for queries that read one kv head of one sequence.
template <class T>
class ForwardTask {
 public:
  using C = compute_t<T>;

  static int64_t scratch_numel(const AttentionShape& shape) {
    return QueryBlock<T>::scratch_numel(shape) + PackedKeys<T>::scratch_numel(shape);
  }
  ForwardTask(const ForwardCall& call, Carver<C> scratch)
      : call_(call), keys_(call.shape, scratch), queries_(call.shape, scratch) {}

  /// Blocks [begin_block, end_block) of the queries of all heads that read this kv head.
  void run(int64_t sequence, int64_t kv_head, int64_t begin_block, int64_t end_block) {
    const AttentionShape& shape = call_.shape;
    const int64_t first_key = sequence * shape.num_keys;
    keys_.start({call_.k, first_key, kv_head}, {call_.v, first_key, kv_head});
    for (int64_t head = kv_head * shape.group; head < (kv_head + 1) * shape.group; ++head) {
      for (int64_t block = begin_block; block < end_block; ++block) attend(sequence, head, block * kBlockQueries);
    }
  }

 private:
  void attend(int64_t sequence, int64_t head, int64_t begin) {
    const AttentionShape& shape = call_.shape;
    const int64_t first_query = sequence * shape.num_queries,
                  count = std::min(kBlockQueries, shape.num_queries - begin);
    const int32_t* const key_positions = call_.mask.key_positions.data<int32_t>() + sequence * shape.num_keys;
    queries_.start({call_.q, first_query, head}, begin, count, static_cast<C>(call_.scale * kLog2E));
    queries_.set_positions(call_.mask.query_positions.data<int32_t>() + first_query + begin,
                           call_.mask.first_visible.data<int32_t>() + first_query + begin);
    for (int64_t key = 0; key < shape.num_keys; key += kBlockKeys) {
      const KeyPositions<C> positions(key_positions + key, std::min(kBlockKeys, shape.num_keys - key));
      queries_.attend(positions, keys_, key / kBlockKeys);
    }
    queries_.finish({call_.o, first_query, head}, call_.lse.data<C>() + first_query * shape.heads + head, shape.heads,
                    begin);
  }

  const ForwardCall& call_;
  PackedKeys<T> keys_;
  QueryBlock<T> queries_;
};

/// Into how many tasks the queries of a kv head are cut: only as many as keep all threads busy, since every task packs
/// the keys anew. What a query gets does not depend on it.
int64_t num_parts(const AttentionShape& shape, int64_t num_threads) {
  constexpr int64_t kTasksPerThread = 4;
  const int64_t kv_heads = std::max<int64_t>(1, shape.num_sequences * shape.kv_heads);
  return std::clamp<int64_t>(num_blocks(num_threads * kTasksPerThread, kv_heads), 1,
                             std::max<int64_t>(1, num_blocks(shape.num_queries, kBlockQueries)));
}

}  // namespace

void CpuOps::attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, double scale,
                       Tensor& o, Tensor& lse) {
  dispatch(q.dtype(), [&]<class T>() {
    const ForwardCall call{AttentionShape(q, k, mask), q, k, v, mask, scale, o, lse};
    const AttentionShape& shape = call.shape;
    const int64_t heads = shape.num_sequences * shape.kv_heads, blocks = num_blocks(shape.num_queries, kBlockQueries);
    const int64_t parts = num_parts(shape, omp_get_max_threads());
    const int num_threads = static_cast<int>(std::clamp<int64_t>(heads * parts, 1, omp_get_max_threads()));
    const ThreadScratch<compute_t<T>> scratch(device(), num_threads, ForwardTask<T>::scratch_numel(shape));
#pragma omp parallel num_threads(num_threads)
    {
      ForwardTask<T> task(call, scratch.of(omp_get_thread_num()));
#pragma omp for schedule(dynamic)
      for (int64_t i = 0; i < heads * parts; ++i) {
        // Last queries first: under a causal mask they have the most to do.
        const int64_t part = parts - 1 - i / heads, head = i % heads;
        task.run(head / shape.kv_heads, head % shape.kv_heads, blocks * part / parts, blocks * (part + 1) / parts);
      }
    }
  });
}

}  // namespace tensor::cpu
