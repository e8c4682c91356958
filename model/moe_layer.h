#pragma once
/// A feed-forward layer of many experts, of which each token takes its top_k:
///   y = sum over the chosen of weight * expert(x), in order of preference, + shared expert(x)
///
/// The ranks of a block first share the tokens out (under tp with whole tokens each takes its part, and outputs are
/// gathered), so that none is routed twice. Rows then go to the ranks of their experts and come back: two all-to-alls
/// forward, two backward.

#include <optional>

#include "model/experts.h"
#include "model/mlp.h"
#include "model/router_layer.h"
#include "parallel/token_exchange.h"

namespace model {

class MoeLayer {
 public:
  /// Where the rows of a micro-batch go. Decided once, whatever is recomputed.
  struct Routing {
    parallel::TokenExchange::Route route;
    std::vector<int64_t> chosen;  // [num_experts]
    tensor::Tensor tokens;        // int32 [rows sent]: the token that each row is
    tensor::Tensor places;        // int32 [tokens routed here, top_k]: the row of each choice; -1: dropped
  };
  struct Saved {
    RouterLayer::Saved router;
    std::optional<Routing> routing;
    Experts::Saved experts;
    tensor::Tensor returned;  // [rows sent, hidden]: what experts made of them; absent after backward_input
    Mlp::Saved shared;

    void forget_activated();  ///< selective recompute
    void keep_decisions();    ///< full recompute: drops all that can be made again
  };

  /// Registers router and shared expert in the open unit, and experts in a unit of their own, which stays open.
  MoeLayer(const ModelConfig& config, int64_t layer, const std::string& name, const parallel::LayerGroups& groups,
           parallel::ParameterStore& store);

  /// x [tokens held, hidden] (normed) -> y [tokens held, hidden]
  tensor::Tensor forward(tensor::Ops& ops, const tensor::Tensor& x, const MicroBatch& batch,
                         const StageContext& context, Saved& saved) const;
  /// Makes what forward saved, from its decisions.
  void recompute(tensor::Ops& ops, const tensor::Tensor& x, const MicroBatch& batch, const StageContext& context,
                 Saved& saved) const;
  tensor::Tensor backward_input(tensor::Ops& ops, tensor::Tensor dy, const MicroBatch& batch,
                                const StageContext& context, Saved& saved) const;
  /// x is the input of forward.
  void backward_weight(tensor::Ops& ops, const tensor::Tensor& x, const MicroBatch& batch, const StageContext& context,
                       Saved& saved) const;

  void add_router_bias(const parallel::ParameterStore& store, RoutingStatistics& statistics) const {
    router_.add_bias(store, statistics);
  }

 private:
  Routing decide(tensor::Ops& ops, const RowShare& share, const MicroBatch& batch, const StageContext& context,
                 const RouterLayer::Saved& router) const;
  std::vector<bool> kept_choices(const std::vector<int32_t>& ids, const RowShare& share, const MicroBatch& batch,
                                 tensor::Device& device) const;
  void run_experts(tensor::Ops& ops, const tensor::Tensor& x, Saved& saved) const;
  tensor::Tensor gathered(tensor::Tensor own, const RowShare& share, parallel::TokenSharding tokens) const;

  ModelConfig config_;
  int64_t layer_;
  parallel::LayerGroups groups_;
  parallel::TokenExchange exchange_;
  RouterLayer router_;
  std::optional<Mlp> shared_;
  Experts experts_;
};

}  // namespace model
