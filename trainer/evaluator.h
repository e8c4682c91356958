#pragma once
/// The loss on a fixed set: always the same samples, in order, without dropout.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "trainer/learner.h"

namespace trainer {

class Evaluator {
 public:
  /// The set is the first train.eval_steps * train.global_batch_size samples of the validation data, or all of it where
  /// it has fewer. DataError where the config asks for evaluation and keeps no data for it, or where the first batch is
  /// not for this model.
  Evaluator(const Config& config, std::optional<data::Dataset> dataset);

  int64_t num_samples() const { return num_samples_; }  ///< 0: no validation data
  LossSum run(Learner& learner) const;

  /// The result as metrics: "valid_loss", and "valid_bits_per_byte" where a token is a byte.
  std::vector<std::pair<std::string, double>> metrics(const LossSum& loss) const;
  std::string describe(const LossSum& loss) const;  ///< "valid_loss 1.2345, valid_bits_per_byte 1.7810"

 private:
  int64_t batch_size_;
  bool tokens_are_bytes_;
  std::optional<data::Dataset> dataset_;
  int64_t num_samples_ = 0;
};

}  // namespace trainer
