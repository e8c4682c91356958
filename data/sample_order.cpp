#include "data/sample_order.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "tensor/error.h"
#include "tensor/philox.h"

namespace data {

using tensor::ConfigError;
using tensor::hash_name;
using tensor::Philox;

namespace {

constexpr int64_t kMaxWeightedSources =
    4096;  // each gets at least one place in a block, and a share must mean something

constexpr uint64_t kPoolKey = hash_name("data.order.pool");
constexpr uint64_t kBlockKey = hash_name("data.order.block");
constexpr uint64_t kSourceKey = hash_name("data.order.source");

uint64_t derive_key(uint64_t seed, uint64_t purpose, uint64_t index = 0) {
  const auto r = Philox::draw(Philox::counter(purpose, index), Philox::key(seed));
  return uint64_t{r[1]} << 32 | r[0];
}

/// Places of each source in a block: the weight's share by largest remainder, but at least one.
std::vector<int64_t> block_counts(const std::vector<SourceSize>& sources, int64_t block_size) {
  double total = 0;
  for (const SourceSize& source : sources) total += source.weight;
  std::vector<int64_t> counts(sources.size());
  std::vector<double> missing(sources.size());  // what rounding took away; below 0 where "at least one" gave
  for (size_t i = 0; i < sources.size(); ++i) {
    const double exact = sources[i].weight / total * static_cast<double>(block_size);
    counts[i] = std::max<int64_t>(1, static_cast<int64_t>(exact));
    missing[i] = exact - static_cast<double>(counts[i]);
  }
  int64_t left = block_size - std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (; left != 0; left -= left > 0 ? 1 : -1) {
    const int64_t step = left > 0 ? 1 : -1;
    size_t best = 0;  // ties: the first source
    for (size_t i = 1; i < sources.size(); ++i) {
      const bool can_give = step > 0 || counts[i] > 1;
      const bool is_better = step > 0 ? missing[i] > missing[best] : missing[i] < missing[best] || counts[best] == 1;
      if (can_give && is_better) best = i;
    }
    counts[best] += step;
    missing[best] -= static_cast<double>(step);
  }
  return counts;
}

std::vector<int64_t> running_begins(const std::vector<int64_t>& counts) {
  std::vector<int64_t> begins = {0};
  for (const int64_t count : counts) begins.push_back(begins.back() + count);
  return begins;
}

/// The i with begins[i] <= value < begins[i + 1].
int64_t find_interval(const std::vector<int64_t>& begins, int64_t value) {
  return std::upper_bound(begins.begin(), begins.end(), value) - begins.begin() - 1;
}

bool check_weights(const std::vector<SourceSize>& sources) {
  int64_t num_weighted = 0;
  for (const SourceSize& source : sources) {
    CHECK(source.num_samples > 0, "a source has samples");
    if (!std::isfinite(source.weight) || source.weight < 0)
      throw ConfigError(
          fmt::format("data.train: weight = {} is not a positive number.\n"
                      "  Fix: use positive weights; remove a file that should not be read.",
                      source.weight));
    num_weighted += source.weight > 0;
  }
  const auto num_sources = static_cast<int64_t>(sources.size());
  if (num_weighted != 0 && num_weighted != num_sources)
    throw ConfigError(
        fmt::format("data.train: {} of {} files have a weight.\n"
                    "  Files without weights are read in proportion to their size, which has no meaning "
                    "beside weights.\n  Fix: give a weight above 0 to every file, or to none.",
                    num_weighted, num_sources));
  if (num_weighted > kMaxWeightedSources)
    throw ConfigError(fmt::format("data.train: {} weighted files; {} is the most.\n  Fix: merge files.", num_weighted,
                                  kMaxWeightedSources));
  return num_weighted > 0;
}

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t key, uint64_t variant) : size_(size), key_(key), variant_(variant) {
  CHECK(size > 0 && size <= uint64_t{1} << 62, "a permutation of {} elements", size);
  // At least 2 * 2 bits: halves of one bit have too few round functions to mix by.
  half_bits_ = std::max(2, (static_cast<int>(std::bit_width(size - 1)) + 1) / 2);
}

uint64_t Permutation::scramble(uint64_t value) const {
  constexpr uint32_t kRounds = 8;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const auto counter = Philox::counter(right | uint64_t{round} << 32, variant_);
    const uint64_t mixed = left ^ (Philox::draw(counter, Philox::key(key_))[0] & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  CHECK(index < size_, "index {} of a permutation of {}", index, size_);
  if (size_ == 1) return 0;
  // Follows the cycle of `index` in the larger set until it comes back inside: a bijection, since cycles do not meet.
  do {
    index = scramble(index);
  } while (index >= size_);
  return index;
}

SampleOrder::SampleOrder(uint64_t seed, std::vector<SourceSize> sources) : seed_(seed), sources_(std::move(sources)) {
  CHECK(!sources_.empty(), "an order has sources");
  is_weighted_ = check_weights(sources_);
  std::vector<int64_t> counts;
  if (is_weighted_) {
    counts = block_counts(sources_, kBlockSize);
  } else {
    for (const SourceSize& source : sources_) counts.push_back(source.num_samples);
  }
  begins_ = running_begins(counts);
}

SampleRef SampleOrder::at(int64_t sample) const {
  CHECK(sample >= 0, "sample number {}", sample);
  return is_weighted_ ? in_blend(sample) : in_pool(sample);
}

SampleRef SampleOrder::in_pool(int64_t sample) const {
  const int64_t size = begins_.back();
  const int64_t epoch = sample / size;
  const Permutation shuffled(size, derive_key(seed_, kPoolKey), epoch);
  const auto place = static_cast<int64_t>(shuffled(sample % size));
  const int64_t source = find_interval(begins_, place);
  return {.source = source, .epoch = epoch, .index = place - begins_[source]};
}

SampleRef SampleOrder::in_blend(int64_t sample) const {
  const int64_t block = sample / kBlockSize;
  const Permutation mixed(kBlockSize, derive_key(seed_, kBlockKey), block);
  const auto place = static_cast<int64_t>(mixed(sample % kBlockSize));
  const int64_t source = find_interval(begins_, place);
  const int64_t per_block = begins_[source + 1] - begins_[source];
  const int64_t number = block * per_block + (place - begins_[source]);  // of all samples taken from this source

  const int64_t size = sources_[source].num_samples;
  const int64_t epoch = number / size;
  const Permutation shuffled(size, derive_key(seed_, kSourceKey, source), epoch);
  return {.source = source, .epoch = epoch, .index = static_cast<int64_t>(shuffled(number % size))};
}

InTurnOrder::InTurnOrder(std::vector<int64_t> num_samples) : by_size_(num_samples.size()) {
  CHECK(!num_samples.empty(), "an order has sources");
  const auto num_sources = static_cast<int64_t>(num_samples.size());
  std::iota(by_size_.begin(), by_size_.end(), 0);
  std::stable_sort(by_size_.begin(), by_size_.end(),
                   [&](int64_t a, int64_t b) { return num_samples[a] < num_samples[b]; });
  int64_t rounds = 0, visited = 0;
  for (int64_t i = 0; i < num_sources; ++i) {
    const int64_t size = num_samples[by_size_[i]];
    visited += (size - rounds) * (num_sources - i);
    rounds = size;
    sizes_.push_back(size);
    ends_.push_back(visited);
  }
}

SampleRef InTurnOrder::at(int64_t sample) const {
  CHECK(sample >= 0, "sample number {}", sample);
  const int64_t epoch = sample / ends_.back();
  sample %= ends_.back();
  const int64_t level = std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin();
  const int64_t num_left = static_cast<int64_t>(sizes_.size()) - level;  // sources not exhausted, from `level` on
  const int64_t before = level == 0 ? 0 : ends_[level - 1];
  const int64_t rounds = level == 0 ? 0 : sizes_[level - 1];
  return {.source = by_size_[level + (sample - before) % num_left],
          .epoch = epoch,
          .index = rounds + (sample - before) / num_left};
}

}  // namespace data
