#pragma once
/// A contiguous run of the model: on one rank all of it, under pipeline parallelism the part of one stage.

#include <optional>
#include <vector>

#include "model/embedding.h"
#include "model/head.h"
#include "model/kv_cache.h"

namespace model {

struct StageSpan {
  int64_t first_layer = 0;
  int64_t last_layer = 0;     ///< one past the last
  bool has_embedding = true;  ///< the first stage
  bool has_head = true;       ///< the last stage
};
StageSpan whole_model(const ModelConfig& config);

struct StageOptions {
  Recompute recompute = Recompute::none;
  uint64_t seed = 0;  ///< of dropout
};

class Stage {
 public:
  /// What one micro-batch keeps between its passes. Any number of micro-batches may be in flight.
  struct Saved {
    Embedding::Saved embedding;
    std::vector<Block::Saved> blocks;
    Head::Saved head;
    double loss = 0;  ///< sum of token losses; last stage only
  };

  /// Registers the parameters; store.allocate() comes before the first pass.
  Stage(const ModelConfig& config, const StageSpan& span, const StageOptions& options, parallel::ParameterStore& store);

  /// Tables that need a device. Once, before the first pass.
  void prepare(tensor::Device& device, tensor::Dtype dtype);

  /// hidden [tokens, hidden] of the stage before (absent on the first) -> hidden for the next. The last stage returns
  /// an absent tensor and leaves the loss in saved.
  tensor::Tensor forward(tensor::Ops& ops, const MicroBatch& batch, tensor::Tensor hidden, Saved& saved) const;
  /// d_hidden from the next stage (absent on the last) -> d_hidden for the stage before (absent on the first).
  tensor::Tensor backward_input(tensor::Ops& ops, const MicroBatch& batch, tensor::Tensor d_hidden, Saved& saved) const;
  /// The last use of saved: its tensors are freed, layer by layer.
  void backward_weight(tensor::Ops& ops, const MicroBatch& batch, Saved& saved) const;
  /// Both backward passes, layer by layer: what a layer saved is freed as soon as it is used.
  tensor::Tensor backward(tensor::Ops& ops, const MicroBatch& batch, tensor::Tensor d_hidden, Saved& saved) const;

  /// Sum of token losses of a whole model, without dropout and without keeping anything.
  double evaluate(tensor::Ops& ops, const MicroBatch& batch) const;
  /// Logits acc [1, vocab_size] after the last of the new tokens of one sequence, which join the cache. A model with
  /// positions (learned or RoPE) knows the first seq_len.
  tensor::Tensor decode(tensor::Ops& ops, const MicroBatch& batch, KvCache& cache) const;
  /// Logits acc [tokens, vocab_size] of a whole model, without dropout.
  tensor::Tensor logits(tensor::Ops& ops, const MicroBatch& batch) const;

 private:
  tensor::Tensor forward_hidden(tensor::Ops& ops, const MicroBatch& batch, const StageContext& context) const;

  ModelConfig config_;
  StageContext training_;   // dropout and recompute as configured
  StageContext inference_;  // neither
  std::optional<Embedding> embedding_;
  std::vector<Block> blocks_;
  std::optional<Head> head_;
};

}  // namespace model
