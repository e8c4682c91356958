#pragma once
/// The small matrix product that attention is built from: kTileRows rows at a time, accumulated in registers. On tiles
/// of 64 x 64 x 64 it runs at the peak of the machine, where a BLAS spends a quarter of its time packing.

#include "tensor/cpu/simd.h"
#include "tensor/ops.h"

namespace tensor::cpu {

// kTileRows x kTileVectors accumulators, and the vectors they are made from, fit the registers.
constexpr int kTileRows = kVectorRegisters == 32 ? 8 : 4;
constexpr int kTileVectors = 2;

/// How the left factor [kTileRows, k] lies in memory.
enum class Left {
  by_rows,     ///< element (i, p) at i * stride + p
  by_columns,  ///< element (i, p) at p * stride + i: the transpose of something that lies by rows
};

template <class C>
struct Operand {
  C* data;
  int64_t stride;  ///< elements between rows
};

template <class C, int kVectors, Left kLeft>
[[gnu::always_inline]] inline void multiply_panel(Operand<const C> a, Operand<const C> b, Operand<C> c, int64_t k,
                                                  Write write) {
  Vector<C> sum[kTileRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      sum[i][j] = write == Write::accumulate ? load_vector(c.data + i * c.stride + j * kLanes<C>) : Vector<C>{};
    }
  }
  for (int64_t p = 0; p < k; ++p) {
    Vector<C> right[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) right[j] = load_vector(b.data + p * b.stride + j * kLanes<C>);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      const C left = a.data[kLeft == Left::by_rows ? i * a.stride + p : p * a.stride + i];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sum[i][j] += left * right[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kTileRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) store_vector(c.data + i * c.stride + j * kLanes<C>, sum[i][j]);
  }
}

/// c [kTileRows, n] (+)= a [kTileRows, k] * b [k, n]; n is a multiple of the lanes.
template <class C, Left kLeft>
void multiply_tile(Operand<const C> a, Operand<const C> b, Operand<C> c, int64_t n, int64_t k, Write write) {
  constexpr int64_t kPanel = kTileVectors * kLanes<C>;
  int64_t column = 0;
  for (; column + kPanel <= n; column += kPanel) {
    multiply_panel<C, kTileVectors, kLeft>(a, {b.data + column, b.stride}, {c.data + column, c.stride}, k, write);
  }
  for (; column < n; column += kLanes<C>) {
    multiply_panel<C, 1, kLeft>(a, {b.data + column, b.stride}, {c.data + column, c.stride}, k, write);
  }
}

}  // namespace tensor::cpu
