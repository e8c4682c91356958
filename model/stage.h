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
    std::optional<parallel::ParameterStore::Use> head_in_use;  // the first backward follows the last forward
    double loss = 0;                                           ///< sum of token losses; last stage only
  };

  /// Registers the parameters, a unit for each part; store.allocate() comes before the first pass. The passes tell the
  /// store when they need a unit's values and when its gradients are complete. Groups and store outlive the stage.
  Stage(const ModelConfig& config, const StageSpan& span, const StageOptions& options,
        const parallel::TensorParallel& tensor_parallel, parallel::ParameterStore& store);

  /// Tables that need a device. Once, before the first pass.
  void prepare(tensor::Device& device, tensor::Dtype dtype);

  /// hidden [tokens held, hidden] of the stage before (absent on the first) -> hidden for the next. The last stage
  /// returns an absent tensor and leaves the loss in saved.
  tensor::Tensor forward(tensor::Ops& ops, const MicroBatch& batch, tensor::Tensor hidden, Saved& saved) const;
  /// d_hidden from the next stage (absent on the last) -> d_hidden for the stage before (absent on the first).
  tensor::Tensor backward_input(tensor::Ops& ops, const MicroBatch& batch, tensor::Tensor d_hidden, Saved& saved) const;
  /// The last use of saved: its tensors are freed, layer by layer.
  void backward_weight(tensor::Ops& ops, const MicroBatch& batch, Saved& saved) const;
  /// Both backward passes, layer by layer: what a layer saved is freed as soon as it is used.
  tensor::Tensor backward(tensor::Ops& ops, const MicroBatch& batch, tensor::Tensor d_hidden, Saved& saved) const;

  // On tensor-parallel ranks all of these are called together, and give the same on each.

  /// Sum of token losses of a whole model, without dropout and without keeping anything.
  double evaluate(tensor::Ops& ops, const MicroBatch& batch) const;
  /// Logits acc [1, vocab_size] after the last of the new tokens of one sequence, which join the cache. A model with
  /// positions (learned or RoPE) knows the first seq_len.
  tensor::Tensor decode(tensor::Ops& ops, const MicroBatch& batch, KvCache& cache) const;
  /// For `capacity` tokens of one sequence.
  KvCache make_cache(int64_t capacity, tensor::Dtype dtype, tensor::Device& device) const;
  /// Logits acc [tokens, vocab_size] of a whole model, without dropout.
  tensor::Tensor logits(tensor::Ops& ops, const MicroBatch& batch) const;

 private:
  using Unit = parallel::ParameterUnit;
  using Use = parallel::ParameterStore::Use;

  // A part's passes, with its values in place and the next part's on their way.
  tensor::Tensor embed(tensor::Ops& ops, const MicroBatch& batch, const StageContext& context) const;
  Use use_in_forward(size_t block) const;
  Use use_in_backward(size_t block) const;
  double head_loss(tensor::Ops& ops, tensor::Tensor x, const MicroBatch& batch, const StageContext& context,
                   Saved& saved) const;
  tensor::Tensor head_logits(tensor::Ops& ops, const tensor::Tensor& x, const StageContext& context) const;
  void finish_head(tensor::Ops& ops, Saved& saved) const;
  void finish_embedding(tensor::Ops& ops, const MicroBatch& batch, Saved& saved) const;
  tensor::Tensor forward_hidden(tensor::Ops& ops, const MicroBatch& batch) const;

  ModelConfig config_;
  parallel::TensorParallel tensor_parallel_;
  parallel::ParameterStore& store_;
  StageContext training_;    // dropout, recompute and token sharding as configured
  StageContext evaluation_;  // no dropout, nothing kept
  StageContext decoding_;    // nor sharded tokens: one token has no parts
  std::optional<Embedding> embedding_;
  std::vector<Block> blocks_;
  std::optional<Head> head_;
  Unit* embedding_unit_ = nullptr;
  std::vector<Unit*> block_units_;
  Unit* head_unit_ = nullptr;
};

}  // namespace model
