#pragma once
/// One pre-norm transformer layer, whose second half may be many experts:
///   residual = x + dropout(attention(norm(x)))
///   y        = residual + dropout(mlp(norm(residual)))

#include "model/attention.h"
#include "model/feed_forward.h"

namespace model {

class Block {
 public:
  /// What a micro-batch keeps. Selective recompute drops what is cheap to make again (outputs of norms and activation),
  /// full recompute all but x and routers' decisions; the backward passes make it again, as late as they can. Matrices:
  /// [tokens held, hidden].
  struct Saved {
    tensor::Tensor x;
    tensor::Tensor attention_in, attention_in_stats;  // norm(x)
    Attention::Saved attention;
    tensor::Tensor residual;
    tensor::Tensor mlp_in, mlp_in_stats;  // norm(residual)
    FeedForward::Saved mlp;
    tensor::Tensor d_attention_in, d_mlp_in;  // from backward_input, for backward_weight
  };

  Block(const ModelConfig& config, int64_t layer, const parallel::LayerGroups& groups, parallel::ParameterStore& store);

  /// x [tokens held, hidden] -> y [tokens held, hidden]
  tensor::Tensor forward(tensor::Ops& ops, tensor::Tensor x, const MicroBatch& batch, const StageContext& context,
                         Saved& saved) const;
  tensor::Tensor backward_input(tensor::Ops& ops, tensor::Tensor dy, const MicroBatch& batch,
                                const StageContext& context, Saved& saved) const;
  /// The last use of saved, which is empty afterwards.
  void backward_weight(tensor::Ops& ops, const MicroBatch& batch, const StageContext& context, Saved& saved) const;

  /// Forward of new tokens of one sequence, without dropout, with the layer's key and value cache.
  tensor::Tensor decode(tensor::Ops& ops, const tensor::Tensor& x, const MicroBatch& batch, const StageContext& context,
                        LayerCache& cache) const;

  /// What this rank alone counts of its router's bias, where it has one.
  void add_router_bias(const parallel::ParameterStore& store, RoutingStatistics& statistics) const {
    mlp_.add_router_bias(store, statistics);
  }

 private:
  // From saved.x to saved.mlp_in.
  void forward_to_mlp(tensor::Ops& ops, const MicroBatch& batch, const StageContext& context, Saved& saved) const;
  void drop_recomputable(Recompute recompute, Saved& saved) const;
  tensor::Dropout dropout(const MicroBatch& batch, const StageContext& context, int64_t branch) const;

  tensor::Tensor held_index(const MicroBatch& batch, const StageContext& context) const;  // int64 [tokens held]

  int64_t layer_;
  parallel::Communicator& tp_;
  NormLayer attention_norm_;
  Attention attention_;
  NormLayer mlp_norm_;
  FeedForward mlp_;
};

}  // namespace model
