#pragma once
/// Sums over tokens: the gradients of biases.

#include "tensor/ops.h"

namespace tensor::cpu {

/// sums [columns] (+)= sum over the rows of x [rows, columns], strided. Added up in fp64, row by row, by threads that
/// share the columns out: the same bits for any number of threads.
void column_sums(const Tensor& x, Tensor& sums, Write write);

}  // namespace tensor::cpu
