#pragma once
/// A contiguous run of the model: on one rank all of it, under pipeline parallelism the part of one stage.

#include <optional>
#include <vector>

#include "model/embedding.h"
#include "model/head.h"
#include "model/kv_cache.h"
#include "model/routing_statistics.h"

namespace model {

struct StageSpan {
  int64_t first_layer = 0;
  int64_t last_layer = 0;     ///< one past the last; a stage may have no layers
  bool has_embedding = true;  ///< the first stage
  bool has_head = true;       ///< the last stage

  int64_t num_layers() const { return last_layer - first_layer; }
  bool operator==(const StageSpan&) const = default;
};
StageSpan whole_model(const ModelConfig& config);

struct StageOptions {
  Recompute recompute = Recompute::none;
  uint64_t seed = 0;  ///< of dropout
  /// The ranks of first and last stage, which both hold a tied table. Null: one rank has both.
  parallel::Communicator* tied = nullptr;
  RoutingStatistics* statistics = nullptr;  ///< of training, that layers with experts add to; null: nobody asks
};

/// Whether a backward pass also starts to sum its gradients over data-parallel ranks, each block as it ends.
enum class Reduce { later, now };

class Stage {
 public:
  /// What one micro-batch keeps between its passes. Any number of micro-batches may be in flight.
  struct Saved {
    Embedding::Saved embedding;
    std::vector<Block::Saved> blocks;
    Head::Saved head;
    double loss = 0;  ///< sum of token losses; last stage only
  };

  /// Registers the parameters, a unit for each part; store.allocate() comes before the first pass. A rank's stages
  /// share its store, and a tied table where first and last stage are on it. Groups and store outlive the stage.
  Stage(const ModelConfig& config, const StageSpan& span, const StageOptions& options,
        const parallel::LayerGroups& groups, parallel::ParameterStore& store);

  /// Tables that need a device. Once, before the first pass.
  void prepare(tensor::Device& device, tensor::Dtype dtype);

  /// hidden [tokens held, hidden] of the stage before (absent on the first) -> hidden for the next. The last stage
  /// returns an absent tensor and leaves the loss in saved.
  tensor::Tensor forward(tensor::Ops& ops, const MicroBatch& batch, tensor::Tensor hidden, Saved& saved) const;
  /// d_hidden from the next stage (absent on the last) -> d_hidden for the stage before (absent on the first).
  tensor::Tensor backward_input(tensor::Ops& ops, const MicroBatch& batch, tensor::Tensor d_hidden, Saved& saved) const;
  /// The last use of saved: its tensors are freed, layer by layer.
  void backward_weight(tensor::Ops& ops, const MicroBatch& batch, Saved& saved, Reduce reduce) const;
  /// Both backward passes, layer by layer: what a layer saved is freed as soon as it is used.
  tensor::Tensor backward(tensor::Ops& ops, const MicroBatch& batch, tensor::Tensor d_hidden, Saved& saved,
                          Reduce reduce) const;

  /// What this rank alone counts of the biases of routers.
  void add_router_biases(RoutingStatistics& statistics) const;

  /// Starts to gather all values of the stage (ZeRO-3) and keeps them as long as the result lives.
  std::vector<parallel::ParameterStore::Use> hold() const;

  // On tensor-parallel ranks all of these are called together, and give the same on each.

  struct Evaluated {
    tensor::Tensor hidden;  ///< for the next stage
    double loss = 0;        ///< sum of token losses; last stage only
  };
  /// Without dropout and without keeping anything.
  Evaluated evaluate(tensor::Ops& ops, const MicroBatch& batch, tensor::Tensor hidden = {}) const;
  /// The new tokens of one sequence join the cache. hidden of the stage before -> hidden for the next; the last stage
  /// returns logits acc [1, vocab_size] after the last token. A model with positions (learned or RoPE) knows the first
  /// seq_len.
  tensor::Tensor decode(tensor::Ops& ops, const MicroBatch& batch, tensor::Tensor hidden, KvCache& cache) const;
  /// For `capacity` tokens of one sequence, of the layers here.
  KvCache make_cache(int64_t capacity, tensor::Dtype dtype, tensor::Device& device) const;
  /// Logits acc [tokens, vocab_size] of a whole model, without dropout.
  tensor::Tensor logits(tensor::Ops& ops, const MicroBatch& batch) const;

 private:
  using Unit = parallel::ParameterUnit;
  using Use = parallel::ParameterStore::Use;

  void add_embedding(const ModelConfig& config, const StageOptions& options);
  void add_head(const ModelConfig& config, const StageOptions& options);
  void add_block(const ModelConfig& config, int64_t layer);
  parallel::Parameter& add_token_table(const StageOptions& options);
  Unit& begin_unit(const std::string& name);

  // A part's passes, with its values in place and the next part's on their way.
  tensor::Tensor embed(tensor::Ops& ops, const MicroBatch& batch, const StageContext& context) const;
  void prefetch(const std::vector<Unit*>& units) const;
  std::vector<Use> use(const std::vector<Unit*>& units, Use::Kind kind) const;
  std::vector<Use> use_in_forward(size_t block) const;
  std::vector<Use> use_in_backward(size_t block, Use::Kind kind) const;
  double head_loss(tensor::Ops& ops, tensor::Tensor x, const MicroBatch& batch, const StageContext& context,
                   Head::Saved& saved) const;
  tensor::Tensor head_logits(tensor::Ops& ops, const tensor::Tensor& x, const StageContext& context) const;
  tensor::Tensor head_backward_input(tensor::Ops& ops, Saved& saved, Use::Kind kind) const;
  void finish_head(tensor::Ops& ops, Saved& saved, Reduce reduce) const;
  void finish_embedding(tensor::Ops& ops, const MicroBatch& batch, Saved& saved, Reduce reduce) const;
  tensor::Tensor blocks_evaluated(tensor::Ops& ops, const MicroBatch& batch, tensor::Tensor hidden) const;
  void reduce_if_now(Reduce reduce, const std::vector<Unit*>& units) const;

  ModelConfig config_;
  parallel::LayerGroups groups_;
  parallel::ParameterStore& store_;
  StageContext training_;    // dropout, recompute and token sharding as configured
  StageContext evaluation_;  // no dropout, nothing kept
  StageContext decoding_;    // nor sharded tokens: one token has no parts
  std::optional<Embedding> embedding_;
  std::vector<Block> blocks_;
  std::optional<Head> head_;

  Unit* token_unit_ = nullptr;                   // the embedding's table
  std::vector<Unit*> embedding_units_;           // that, and learned positions
  std::vector<std::vector<Unit*>> block_units_;  // of each block: it, and its experts where it has some
  Unit* norm_unit_ = nullptr;
  Unit* head_table_unit_ = nullptr;
  std::vector<Unit*> head_units_;  // the final norm, and the table where no embedding here has it too
};

}  // namespace model
