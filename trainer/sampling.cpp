#include "trainer/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tensor/error.h"
#include "tensor/philox.h"

namespace trainer {

namespace {

/// Token ids, likeliest first.
std::vector<int32_t> ranked(std::span<const double> logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  return ids;
}

double uniform(uint64_t seed, int64_t index) {
  const auto counter = tensor::Philox::counter(static_cast<uint64_t>(index), tensor::hash_name("sample"));
  return tensor::to_uniform(tensor::Philox::draw(counter, tensor::Philox::key(seed))[0]);
}

}  // namespace

int32_t sample_token(std::span<const double> logits, const SamplingOptions& options, int64_t index) {
  CHECK(!logits.empty(), "there are tokens to choose from");
  std::vector<int32_t> ids = ranked(logits);
  if (options.temperature == 0) return ids.front();
  if (options.top_k > 0) ids.resize(std::min(ids.size(), static_cast<size_t>(options.top_k)));

  std::vector<double> weights;
  const double highest = logits[static_cast<size_t>(ids.front())];
  for (const int32_t id : ids) {
    weights.push_back(std::exp((logits[static_cast<size_t>(id)] - highest) / options.temperature));
  }
  // The nucleus: as few of the likeliest as reach top_p of the mass, and at least one.
  const double nucleus_mass = options.top_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  double mass = 0;
  size_t kept = 0;
  while (kept < weights.size() && (kept == 0 || mass < nucleus_mass)) mass += weights[kept++];

  double rest = uniform(options.seed, index) * mass;
  for (size_t i = 0; i < kept; ++i) {
    rest -= weights[i];
    if (rest < 0) return ids[i];
  }
  return ids[kept - 1];
}

}  // namespace trainer
