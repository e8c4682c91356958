#pragma once
/// Which sample of which source the n-th training sample is: a pure function of (seed, sources, n). Nothing is built or
/// stored that grows with the data, and nothing depends on ranks, batch sizes or the length of the run. A run that has
/// seen n samples resumes at sample n. The order is part of every run's results: tests hold its golden values.

#include <cstdint>
#include <vector>

namespace data {

/// A pseudo-random bijection of [0, size), evaluated one element at a time: a Feistel network with Philox rounds over
/// the next power of 4, walked until it lands inside [0, size) (at most 4 times on average once size > 16).
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t key, uint64_t variant);

  uint64_t operator()(uint64_t index) const;

 private:
  uint64_t scramble(uint64_t value) const;

  uint64_t size_, key_, variant_;
  int half_bits_;
};

struct SourceSize {
  int64_t num_samples = 0;
  double weight = 0;  ///< all sources have one, or none has
};

struct SampleRef {
  int64_t source = 0;
  int64_t epoch = 0;  ///< how often this source (without weights: every source) was visited completely before
  int64_t index = 0;  ///< of the sample in its source

  bool operator==(const SampleRef&) const = default;
};

/// Order of training samples. Without weights the sources are one pool, and each epoch is a permutation of it. With
/// weights each block of kBlockSize sample numbers holds exactly round(kBlockSize * weight share) samples of each
/// source (at least one), shuffled; each source runs through epochs of its own.
class SampleOrder {
 public:
  static constexpr int64_t kBlockSize = 65'536;

  /// Throws ConfigError when weights are negative, not finite, or given to only some of the sources.
  SampleOrder(uint64_t seed, std::vector<SourceSize> sources);

  SampleRef at(int64_t sample) const;  ///< O(log sources)

 private:
  SampleRef in_pool(int64_t sample) const;
  SampleRef in_blend(int64_t sample) const;

  uint64_t seed_;
  std::vector<SourceSize> sources_;
  bool is_weighted_;
  std::vector<int64_t> begins_;  ///< pool: first sample of each source; blend: first place of each source in a block
};

/// Order of evaluation samples: sources in turn, each from its beginning, a source that is exhausted dropping out; so
/// any first part of it looks at all sources. One source: 0, 1, 2, ... Starts again after the last sample.
class InTurnOrder {
 public:
  explicit InTurnOrder(std::vector<int64_t> num_samples);

  SampleRef at(int64_t sample) const;  ///< O(log sources)

 private:
  std::vector<int64_t> by_size_;  ///< source numbers, smallest first
  std::vector<int64_t> sizes_;    ///< in that order
  std::vector<int64_t> ends_;     ///< samples visited when the i-th smallest source is exhausted
};

}  // namespace data
