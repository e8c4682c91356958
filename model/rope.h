#pragma once
/// Rotary position embedding (arXiv 2104.09864): frequencies under every scaling, and the table the op reads.

#include <vector>

#include "model/config.h"

namespace model {

/// Angle per position of each rotated pair, [rotary_dim / 2]: theta^(-2i / rotary_dim), scaled.
///   linear   frequency / factor
///   llama3   long wavelengths / factor, short kept, a linear blend between (Llama 3.1 model card)
///   yarn     a ramp over pairs between beta_fast and beta_slow rotations (arXiv 2309.00071, section 3.2)
std::vector<double> rope_frequencies(const ModelConfig& config);

/// What cos and sin are multiplied by: 1, but for yarn (section 3.4).
double rope_attention_factor(const RopeScaling& scaling);

/// acc [max_positions, rotary_dim]: cos of every pair, then sin.
tensor::Tensor make_rope_table(const ModelConfig& config, int64_t max_positions, tensor::Dtype dtype,
                               tensor::Device& device);

}  // namespace model
