#pragma once
/// Text from a trained model, token by token, with a key and value cache.

#include <functional>
#include <vector>

#include "model/pipeline.h"
#include "trainer/sampling.h"

namespace trainer {

class Generator {
 public:
  /// All are borrowed. `config` is the model's.
  Generator(const model::ModelConfig& config, const model::Pipeline& pipeline, tensor::Ops& ops, tensor::Dtype dtype);

  /// Continues `prompt` (at least one token) by num_tokens tokens and hands each to `emit` as it is chosen. Text longer
  /// than the model's seq_len goes on with its last half as context.
  void run(std::vector<int32_t> prompt, int64_t num_tokens, const SamplingOptions& options,
           const std::function<void(int32_t)>& emit);

 private:
  std::vector<double> next_logits(std::span<const int32_t> new_tokens);

  const model::ModelConfig& config_;
  const model::Pipeline& pipeline_;
  tensor::Ops& ops_;
  tensor::Dtype dtype_;
  model::Pipeline::Cache cache_;
};

}  // namespace trainer
