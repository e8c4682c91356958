#include "parallel/reduce.h"

#include <algorithm>

#include "tensor/error.h"

namespace parallel {
namespace {

constexpr int64_t kBlock = 1024;               // elements: the sums of a block stay in the first-level cache
constexpr int64_t kThreadedCount = 64 * 1024;  // below, starting threads costs more than they save

struct Sum {
  template <class T>
  static T join(T a, T b) {
    return a + b;
  }
};

struct Max {
  template <class T>
  static T join(T a, T b) {
    return b > a || b != b ? b : a;
  }
};

template <class T, class Op>
void reduce_block(const std::vector<const void*>& parts, int64_t begin, int64_t end, T* to) {
  using Acc = tensor::compute_t<T>;
  Acc sums[kBlock];
  const int64_t count = end - begin;
  const T* first = static_cast<const T*>(parts[0]) + begin;
  for (int64_t i = 0; i < count; ++i) sums[i] = static_cast<Acc>(first[i]);
  for (size_t rank = 1; rank < parts.size(); ++rank) {
    const T* part = static_cast<const T*>(parts[rank]) + begin;
    for (int64_t i = 0; i < count; ++i) sums[i] = Op::template join<Acc>(sums[i], static_cast<Acc>(part[i]));
  }
  for (int64_t i = 0; i < count; ++i) to[begin + i] = static_cast<T>(sums[i]);
}

template <class T, class Op>
void reduce_all(const std::vector<const void*>& parts, int64_t count, void* to) {
#pragma omp parallel for schedule(static) if (count >= kThreadedCount)
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    reduce_block<T, Op>(parts, begin, std::min(begin + kBlock, count), static_cast<T*>(to));
  }
}

template <class Op>
void reduce_as(const std::vector<const void*>& parts, int64_t count, tensor::Dtype dtype, void* to) {
  switch (dtype) {
    case tensor::Dtype::fp32:
      return reduce_all<float, Op>(parts, count, to);
    case tensor::Dtype::bf16:
      return reduce_all<tensor::bfloat16, Op>(parts, count, to);
    case tensor::Dtype::fp64:
      return reduce_all<double, Op>(parts, count, to);
    case tensor::Dtype::int32:
      return reduce_all<int32_t, Op>(parts, count, to);
    case tensor::Dtype::int64:
      return reduce_all<int64_t, Op>(parts, count, to);
  }
}

}  // namespace

void reduce_in_rank_order(const std::vector<const void*>& parts, int64_t count, tensor::Dtype dtype,
                          Reduction reduction, void* to) {
  CHECK(!parts.empty(), "something to reduce");
  if (reduction == Reduction::sum) return reduce_as<Sum>(parts, count, dtype, to);
  return reduce_as<Max>(parts, count, dtype, to);
}

}  // namespace parallel
