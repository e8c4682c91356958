#pragma once
/// Elements to and from what arithmetic on them is done in.

#include "tensor/dtype.h"

namespace tensor::cpu {

template <class T>
inline compute_t<T> load(const T& from) {
  return static_cast<compute_t<T>>(from);
}

/// to = x, rounded. Assigns a bfloat16's bits, not the struct: GCC 12 does not vectorise `#pragma omp simd` otherwise.
template <class T>
inline void store(T& to, compute_t<T> x) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    to.bits = bfloat16(x).bits;
  } else {
    to = x;
  }
}

}  // namespace tensor::cpu
