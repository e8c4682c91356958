#pragma once
/// Batches prepared ahead by a thread, so that a training step never waits for a disk.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "data/dataset.h"

namespace data {

/// The sequences of one step that this rank works on, in sample order.
struct Batch {
  int64_t first_sample = 0;  ///< sample number of the first sequence here
  int64_t num_sequences = 0;
  int64_t seq_len = 0;
  int64_t num_valid_targets = 0;        ///< targets here that are not ignored
  std::vector<int32_t> tokens;          ///< [num_sequences, seq_len]
  std::vector<int32_t> targets;         ///< [num_sequences, seq_len]
  std::vector<int32_t> positions;       ///< [num_sequences, seq_len]
  std::vector<int32_t> document_start;  ///< [num_sequences, seq_len]
};

/// Reads samples [first_sample, first_sample + num_sequences) now, on the calling thread.
Batch read_batch(const Dataset& dataset, int64_t first_sample, int64_t num_sequences);

struct LoaderOptions {
  int64_t first_sample = 0;       ///< of the first batch: samples seen so far by the whole run
  int64_t global_batch_size = 1;  ///< samples that each next() moves on, over all ranks
  int64_t slice_begin = 0;        ///< this rank's part [slice_begin, slice_end) of each global batch
  int64_t slice_end = 1;
  int64_t num_batches = -1;      ///< how many there will be; -1: endless
  int64_t prefetch_batches = 2;  ///< prepared ahead, at least 1; changes nothing but waiting
};

class Loader {
 public:
  /// `dataset` must outlive the loader. Reading begins at once.
  Loader(const Dataset& dataset, const LoaderOptions& options);
  ~Loader();  ///< stops the thread, whatever it is doing
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next batch, in order; waits until it is ready. Rethrows what went wrong while reading it. CHECKs that it is
  /// not called more than num_batches times.
  Batch next();

 private:
  void run();
  bool wait_for_room();

  const Dataset& dataset_;
  const LoaderOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  std::exception_ptr error_;  ///< ends the stream, after the batches in ready_
  bool stopping_ = false;
  int64_t num_taken_ = 0;
  std::thread thread_;
};

}  // namespace data
