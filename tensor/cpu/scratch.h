#pragma once
/// Scratch memory for threads, taken from the pool before they start: the pool serves one thread only.

#include "tensor/device.h"

namespace tensor::cpu {

/// Hands out the pieces of one thread's slice in order. Pieces are whole cache lines, so that each begins at one.
template <class C>
class Carver {
 public:
  static constexpr int64_t kLine = Pool::kAlignment / static_cast<int64_t>(sizeof(C));

  explicit Carver(C* next) : next_(next) {}
  C* take(int64_t count) {
    CHECK(count % kLine == 0, "a piece of {} elements is whole cache lines of {}", count, kLine);
    C* const piece = next_;
    next_ += count;
    return piece;
  }

 private:
  C* next_;
};

/// A slice of `count` elements for each of `num_threads` threads.
template <class C>
class ThreadScratch {
 public:
  ThreadScratch(Device& device, int64_t num_threads, int64_t count)
      : count_(count),
        memory_(device.allocate({num_threads, count}, dtype_of<C>, MemoryCategory::workspace)),
        data_(memory_.data<C>()) {}
  Carver<C> of(int64_t thread) const { return Carver<C>(data_ + thread * count_); }

 private:
  int64_t count_;
  Tensor memory_;
  C* data_;
};

}  // namespace tensor::cpu
