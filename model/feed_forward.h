#pragma once
/// The second half of a layer: one feed-forward network, or many experts. Both have the same passes.

#include <variant>

#include "model/mlp.h"
#include "model/moe_layer.h"

namespace model {

class FeedForward {
 public:
  struct Saved {
    Mlp::Saved mlp;       // of a layer without experts
    MoeLayer::Saved moe;  // of one with

    void forget_activated();  ///< selective recompute
    void keep_decisions();    ///< full recompute
  };

  FeedForward(const ModelConfig& config, int64_t layer, const std::string& name, const parallel::LayerGroups& groups,
              parallel::ParameterStore& store);

  /// x [tokens held, hidden] (normed) -> y [tokens held, hidden]
  tensor::Tensor forward(tensor::Ops& ops, const tensor::Tensor& x, const MicroBatch& batch,
                         const StageContext& context, Saved& saved) const;
  /// Makes what forward saved.
  void recompute(tensor::Ops& ops, const tensor::Tensor& x, const MicroBatch& batch, const StageContext& context,
                 Saved& saved) const;
  tensor::Tensor backward_input(tensor::Ops& ops, tensor::Tensor dy, const MicroBatch& batch,
                                const StageContext& context, Saved& saved) const;
  /// x is the input of forward.
  void backward_weight(tensor::Ops& ops, const tensor::Tensor& x, const MicroBatch& batch, const StageContext& context,
                       Saved& saved) const;

  void add_router_bias(const parallel::ParameterStore& store, RoutingStatistics& statistics) const {
    if (!mlp()) moe().add_router_bias(store, statistics);
  }

 private:
  const Mlp* mlp() const { return std::get_if<Mlp>(&layer_); }
  const MoeLayer& moe() const { return std::get<MoeLayer>(layer_); }

  std::variant<Mlp, MoeLayer> layer_;
};

}  // namespace model
