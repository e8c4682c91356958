#include "data/loader.h"

#include "tensor/error.h"

namespace data {

Batch read_batch(const Dataset& dataset, int64_t first_sample, int64_t num_sequences) {
  const int64_t seq_len = dataset.seq_len();
  const auto num_tokens = static_cast<size_t>(num_sequences * seq_len);
  Batch batch{.first_sample = first_sample,
              .num_sequences = num_sequences,
              .seq_len = seq_len,
              .tokens = std::vector<int32_t>(num_tokens),
              .targets = std::vector<int32_t>(num_tokens),
              .positions = std::vector<int32_t>(num_tokens),
              .document_start = std::vector<int32_t>(num_tokens)};
  for (int64_t i = 0; i < num_sequences; ++i) {
    const int64_t at = i * seq_len;
    batch.num_valid_targets += dataset.read(first_sample + i, {.tokens = batch.tokens.data() + at,
                                                               .targets = batch.targets.data() + at,
                                                               .positions = batch.positions.data() + at,
                                                               .document_start = batch.document_start.data() + at});
  }
  return batch;
}

Loader::Loader(const Dataset& dataset, const LoaderOptions& options) : dataset_(dataset), options_(options) {
  CHECK(options.first_sample >= 0, "first_sample = {}", options.first_sample);
  CHECK(0 <= options.slice_begin && options.slice_begin <= options.slice_end &&
            options.slice_end <= options.global_batch_size,
        "slice [{}, {}) of a global batch of {}", options.slice_begin, options.slice_end, options.global_batch_size);
  CHECK(options.prefetch_batches >= 1, "prefetch_batches = {}", options.prefetch_batches);
  thread_ = std::thread([this] { run(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Batch Loader::next() {
  CHECK(options_.num_batches < 0 || num_taken_ < options_.num_batches, "all {} batches were taken",
        options_.num_batches);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty() || error_; });
  if (ready_.empty()) std::rethrow_exception(error_);
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  ++num_taken_;
  lock.unlock();
  changed_.notify_all();
  return batch;
}

/// False: the loader is being destroyed.
bool Loader::wait_for_room() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || static_cast<int64_t>(ready_.size()) < options_.prefetch_batches; });
  return !stopping_;
}

void Loader::run() {
  constexpr int64_t kBatchesPerFileCheck = 64;  // one fstat per file
  try {
    for (int64_t i = 0; i != options_.num_batches && wait_for_room(); ++i) {
      if (i % kBatchesPerFileCheck == 0) dataset_.check_unchanged();
      const int64_t first = options_.first_sample + i * options_.global_batch_size + options_.slice_begin;
      Batch batch = read_batch(dataset_, first, options_.slice_end - options_.slice_begin);
      const std::lock_guard lock(mutex_);
      ready_.push_back(std::move(batch));
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

}  // namespace data
