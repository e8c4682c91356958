#pragma once
/// Choosing the next token from logits.

#include <cstdint>
#include <span>

namespace trainer {

struct SamplingOptions {
  double temperature = 0.8;  ///< divides the logits; 0: always the likeliest token
  int64_t top_k = 0;         ///< only the k likeliest tokens; 0: all
  double top_p = 1;          ///< only the likeliest tokens that together reach this probability (arXiv 1904.09751)
  uint64_t seed = 1234;
};

/// The token for place `index` of the generated text. A function of its arguments alone. Ties go to the lower id.
int32_t sample_token(std::span<const double> logits, const SamplingOptions& options, int64_t index);

}  // namespace trainer
