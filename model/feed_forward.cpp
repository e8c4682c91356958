#include "model/feed_forward.h"

namespace model {

using tensor::Ops;
using tensor::Tensor;

namespace {

std::variant<Mlp, MoeLayer> make_layer(const ModelConfig& config, int64_t layer, const std::string& name,
                                       const parallel::LayerGroups& groups, parallel::ParameterStore& store) {
  if (config.has_experts(layer)) return MoeLayer(config, layer, name, groups, store);
  return Mlp(config, name, groups.tensor, store);
}

}  // namespace

void FeedForward::Saved::forget_activated() {
  mlp.forget_activated();
  moe.forget_activated();
}

void FeedForward::Saved::keep_decisions() {
  mlp = {};
  moe.keep_decisions();
}

FeedForward::FeedForward(const ModelConfig& config, int64_t layer, const std::string& name,
                         const parallel::LayerGroups& groups, parallel::ParameterStore& store)
    : layer_(make_layer(config, layer, name, groups, store)) {}

Tensor FeedForward::forward(Ops& ops, const Tensor& x, const MicroBatch& batch, const StageContext& context,
                            Saved& saved) const {
  if (mlp()) return mlp()->forward(ops, x, context, saved.mlp);
  return moe().forward(ops, x, batch, context, saved.moe);
}

void FeedForward::recompute(Ops& ops, const Tensor& x, const MicroBatch& batch, const StageContext& context,
                            Saved& saved) const {
  if (mlp()) return mlp()->recompute(ops, x, context, saved.mlp);
  moe().recompute(ops, x, batch, context, saved.moe);
}

Tensor FeedForward::backward_input(Ops& ops, Tensor dy, const MicroBatch& batch, const StageContext& context,
                                   Saved& saved) const {
  if (mlp()) return mlp()->backward_input(ops, std::move(dy), context, saved.mlp);
  return moe().backward_input(ops, std::move(dy), batch, context, saved.moe);
}

void FeedForward::backward_weight(Ops& ops, const Tensor& x, const MicroBatch& batch, const StageContext& context,
                                  Saved& saved) const {
  if (mlp()) return mlp()->backward_weight(ops, x, context, saved.mlp);
  moe().backward_weight(ops, x, batch, context, saved.moe);
}

}  // namespace model
