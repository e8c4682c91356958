#pragma once
/// Samples of seq_len tokens cut from token files, in the order of training or of evaluation.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "data/config.h"
#include "data/sample_order.h"
#include "data/token_file.h"

namespace data {

constexpr int32_t kIgnoredTarget = -1;  ///< a position that predicts nothing

struct DatasetOptions {
  int64_t seq_len = 0;
  int64_t vocab_size = 0;  ///< ids are checked against it; 0: not checked
  uint64_t seed = 0;       ///< of the training order
};

/// Where to write one sample: each points to [seq_len] numbers.
struct SampleBuffer {
  int32_t* tokens;
  int32_t* targets;         ///< the next token, or kIgnoredTarget
  int32_t* positions;       ///< 0, 1, ..., seq_len - 1
  int32_t* document_start;  ///< position of the first token of the token's own document; 0 without document_mask
};

/// Sample i of a file is its tokens [i * seq_len, (i + 1) * seq_len) and one more as the last target; a file has
/// (num_tokens - 1) / seq_len of them. Immutable and thread-safe.
class Dataset {
 public:
  /// The endless shuffled stream to train on: config.train without the end that valid_fraction keeps back.
  /// Throws DataError for unusable files, ConfigError for unusable settings.
  static Dataset open_train(const DataConfig& config, const DatasetOptions& options);

  /// The fixed set to evaluate on: config.valid, or the end of each train file. nullopt: the config keeps none.
  static std::optional<Dataset> open_valid(const DataConfig& config, const DatasetOptions& options);

  int64_t seq_len() const { return seq_len_; }
  int64_t num_samples() const { return num_samples_; }  ///< distinct ones, over all sources
  int64_t num_tokens() const { return num_samples_ * seq_len_; }

  /// Writes sample number `sample` (>= 0, no upper end) and returns how many of its targets are not ignored.
  int64_t read(int64_t sample, const SampleBuffer& out) const;

  /// Which sample of which file that is.
  SampleRef locate(int64_t sample) const;

  /// What the order is a function of, besides seed and sample number: sources with sizes and weights, seq_len, mask.
  /// A resumed run compares it: another text means another order.
  std::string description() const;

  /// Throws DataError when a file changed since it was opened.
  void check_unchanged() const;

 private:
  struct Source {
    TokenFile file;
    double weight;
    int64_t first_sample, num_samples;  ///< the part of the file's samples that this split uses
  };
  using Order = std::variant<SampleOrder, InTurnOrder>;

  Dataset(std::vector<Source> sources, Order order, const DataConfig& config, int64_t seq_len);
  static Source open_source(const DataSource& source, const DataConfig& config, const DatasetOptions& options);
  int64_t mark_documents(const TokenFile& file, int64_t begin, const SampleBuffer& out) const;

  std::vector<Source> sources_;
  Order order_;
  bool document_mask_;
  int64_t seq_len_;
  int64_t num_samples_ = 0;
};

}  // namespace data
