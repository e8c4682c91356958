#include "tensor/philox.h"
#include "trainer/verify.h"

namespace trainer {

namespace {

/// Random numbers of one sample, one after another.
class Draws {
 public:
  Draws(uint64_t seed, int64_t sample) : seed_(seed), sample_(static_cast<uint64_t>(sample)) {}

  int64_t below(int64_t n) {
    const auto counter = tensor::Philox::counter(next_++, sample_);
    const auto bits = tensor::Philox::draw(counter, tensor::Philox::key(seed_ ^ tensor::hash_name("synthetic")));
    return static_cast<int64_t>((uint64_t{bits[0]} * static_cast<uint64_t>(n)) >> 32);
  }

 private:
  uint64_t seed_, sample_;
  uint64_t next_ = 0;
};

class SyntheticSource final : public SampleSource {
 public:
  explicit SyntheticSource(const Config& config)
      : seed_(static_cast<uint64_t>(config.run.seed)),
        global_batch_size_(config.train.global_batch_size),
        seq_len_(config.model.seq_len),
        vocab_size_(config.model.vocab_size),
        document_mask_(config.data.document_mask) {}

  data::Batch read(int64_t step, int64_t begin, int64_t end) const override {
    data::Batch batch;
    batch.first_sample = (step - 1) * global_batch_size_ + begin;
    batch.num_sequences = end - begin;
    batch.seq_len = seq_len_;
    for (int64_t i = 0; i < batch.num_sequences; ++i) append(batch.first_sample + i, batch);
    return batch;
  }

 private:
  /// One target in eight is ignored, and every eighth sample has none at all: counts then differ between ranks.
  void append(int64_t sample, data::Batch& batch) const {
    Draws draws(seed_, sample);
    const bool is_silent = draws.below(8) == 0;
    int32_t document_start = 0;
    for (int32_t position = 0; position < seq_len_; ++position) {
      if (document_mask_ && draws.below(5) == 0) document_start = position;
      const bool is_ignored = is_silent || draws.below(8) == 0;
      batch.tokens.push_back(static_cast<int32_t>(draws.below(vocab_size_)));
      batch.targets.push_back(is_ignored ? data::kIgnoredTarget : static_cast<int32_t>(draws.below(vocab_size_)));
      batch.positions.push_back(position);
      batch.document_start.push_back(document_start);
      batch.num_valid_targets += is_ignored ? 0 : 1;
    }
  }

  uint64_t seed_;
  int64_t global_batch_size_, seq_len_, vocab_size_;
  bool document_mask_;
};

class DataSource final : public SampleSource {
 public:
  DataSource(const Config& config, const data::Dataset& dataset)
      : dataset_(dataset), global_batch_size_(config.train.global_batch_size) {}

  data::Batch read(int64_t step, int64_t begin, int64_t end) const override {
    return data::read_batch(dataset_, (step - 1) * global_batch_size_ + begin, end - begin);
  }

 private:
  const data::Dataset& dataset_;
  int64_t global_batch_size_;
};

}  // namespace

std::unique_ptr<SampleSource> make_synthetic_source(const Config& config) {
  return std::make_unique<SyntheticSource>(config);
}

std::unique_ptr<SampleSource> make_data_source(const Config& config, const data::Dataset& dataset) {
  return std::make_unique<DataSource>(config, dataset);
}

}  // namespace trainer
