#pragma once
/// Scratch memory for threads, taken from the pool before they start: the pool serves one thread only.

#include "tensor/device.h"

namespace tensor::cpu {

/// Hands out the pieces of one thread's slice in order.
template <class C>
class Carver {
 public:
  explicit Carver(C* next) : next_(next) {}
  C* take(int64_t count) {
    C* const piece = next_;
    next_ += padded(count);
    return piece;
  }
  /// Elements that take(count) uses up: whole cache lines.
  static constexpr int64_t padded(int64_t count) {
    constexpr int64_t kLine = Pool::kAlignment / static_cast<int64_t>(sizeof(C));
    return (count + kLine - 1) / kLine * kLine;
  }

 private:
  C* next_;
};

/// A slice of equal size for each of `num_threads` threads.
template <class C>
class ThreadScratch {
 public:
  ThreadScratch(Device& device, int64_t num_threads, int64_t count)
      : slice_(Carver<C>::padded(count)),
        memory_(device.allocate({num_threads, slice_}, dtype_of<C>, MemoryCategory::workspace)),
        data_(memory_.data<C>()) {}
  Carver<C> of(int64_t thread) const { return Carver<C>(data_ + thread * slice_); }

 private:
  int64_t slice_;
  Tensor memory_;
  C* data_;
};

}  // namespace tensor::cpu
