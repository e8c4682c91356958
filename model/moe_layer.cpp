#include "model/moe_layer.h"

#include <cmath>
#include <numeric>

#include "model/allocate.h"
#include "model/expert_choice.h"
#include "model/routing_statistics.h"

namespace model {

using parallel::TokenSharding;
using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Ops;
using tensor::Tensor;

namespace {

Tensor upload(const std::vector<int32_t>& host, tensor::Shape shape, tensor::Device& device) {
  Tensor x = device.allocate(shape, Dtype::int32, MemoryCategory::activations);
  device.copy_from_host(host.data(), x);
  return x;
}

std::vector<int32_t> download(const Tensor& x) {
  std::vector<int32_t> host(static_cast<size_t>(x.numel()));
  x.device().copy_to_host(x, host.data());
  return host;
}

ModelConfig shared_config(ModelConfig config) {
  config.ffn_hidden_size = config.moe.shared_ffn_hidden_size;
  return config;
}

/// Experts are held by other ranks than the rest of the layer.
int64_t begin_experts(const std::string& name, const parallel::TokenExchange& exchange,
                      const parallel::LayerGroups& groups, parallel::ParameterStore& store) {
  store.begin_unit(name + ".experts", groups.expert.data);
  return exchange.first_expert();
}

}  // namespace

void MoeLayer::Saved::forget_activated() {
  experts.activated = {};
  shared.forget_activated();
}

void MoeLayer::Saved::keep_decisions() {
  experts = {};
  returned = {};
  shared = {};
}

MoeLayer::MoeLayer(const ModelConfig& config, int64_t layer, const std::string& name,
                   const parallel::LayerGroups& groups, parallel::ParameterStore& store)
    : config_(config),
      layer_(layer),
      groups_(groups),
      exchange_(groups.expert.ep, groups.expert.expert_tp, config.moe.num_experts),
      router_(config, layer, name + ".router", groups, store),
      shared_(config.moe.shared_ffn_hidden_size > 0
                  ? std::optional<Mlp>(std::in_place, shared_config(config), name + ".shared", groups.tensor, store)
                  : std::nullopt),
      experts_(config, name + ".experts", begin_experts(name, exchange_, groups, store), exchange_.experts_here(),
               groups.expert.expert_tp, store) {}

Tensor MoeLayer::forward(Ops& ops, const Tensor& x, const MicroBatch& batch, const StageContext& context,
                         Saved& saved) const {
  const RowShare share = RowShare::of(batch, context.tokens, groups_);
  const Tensor own = x.rows(share.begin, share.end);
  router_.forward(ops, own, share, batch, context, saved.router);
  saved.routing = decide(ops, share, batch, context, saved.router);
  run_experts(ops, own, saved);

  Tensor y = activation_like(own, own.shape());
  ops.combine(saved.returned, saved.routing->places, saved.router.weights, y);
  y = gathered(std::move(y), share, context.tokens);
  if (shared_) ops.add(shared_->forward(ops, x, context, saved.shared), y, y);
  return y;
}

void MoeLayer::recompute(Ops& ops, const Tensor& x, const MicroBatch& batch, const StageContext& context,
                         Saved& saved) const {
  const RowShare share = RowShare::of(batch, context.tokens, groups_);
  run_experts(ops, x.rows(share.begin, share.end), saved);
  if (shared_) shared_->recompute(ops, x, context, saved.shared);
}

MoeLayer::Routing MoeLayer::decide(Ops& ops, const RowShare& share, const MicroBatch& batch,
                                   const StageContext& context, const RouterLayer::Saved& router) const {
  tensor::Device& device = ops.device();
  const MoeConfig& moe = config_.moe;
  const std::vector<int32_t> ids = download(router.ids);
  // Of a document that is written, nothing is dropped: it has no known end.
  const bool may_drop = moe.capacity_factor > 0 && context.mode == Mode::train;
  const std::vector<bool> kept = may_drop ? kept_choices(ids, share, batch, device) : std::vector<bool>();
  SortedChoices sorted = sort_choices(ids, moe.top_k, kept, moe.num_experts);

  Routing routing{.route = exchange_.plan(sorted.counts, device),
                  .chosen = std::move(sorted.chosen),
                  .tokens = upload(sorted.tokens, {std::ssize(sorted.tokens)}, device),
                  .places = upload(sorted.places, {share.size(), moe.top_k}, device)};
  if (context.mode == Mode::train && context.statistics) {
    RoutingStatistics::Layer layer = context.statistics->layer(layer_);
    for (size_t e = 0; e < routing.chosen.size(); ++e) layer.tokens[e] += static_cast<double>(routing.chosen[e]);
    layer.dropped += static_cast<double>(std::ssize(ids) - std::ssize(sorted.tokens));
  }
  return routing;
}

/// All ranks that hold parts of the same sequences learn what the others chose.
std::vector<bool> MoeLayer::kept_choices(const std::vector<int32_t>& ids, const RowShare& share,
                                         const MicroBatch& batch, tensor::Device& device) const {
  parallel::Communicator& sequence = groups_.expert.sequence;
  const auto top_k = static_cast<size_t>(config_.moe.top_k), width = top_k + 1;
  const std::vector<int32_t> positions = download(batch.positions);
  std::vector<int32_t> packed;  // [rows, top_k + 1]: choices and position
  for (int64_t row = 0; row < share.size(); ++row) {
    const auto first = ids.begin() + row * config_.moe.top_k;
    packed.insert(packed.end(), first, first + config_.moe.top_k);
    packed.push_back(positions[static_cast<size_t>(share.rows.first_row + row)]);
  }
  std::vector<int64_t> rows_of_ranks;  // tp is the faster axis
  while (std::ssize(rows_of_ranks) < sequence.size()) {
    rows_of_ranks.insert(rows_of_ranks.end(), share.of_ranks.begin(), share.of_ranks.end());
  }
  const Tensor own = upload(packed, {share.size(), static_cast<int64_t>(width)}, device);
  const int64_t num_rows = std::accumulate(rows_of_ranks.begin(), rows_of_ranks.end(), int64_t{0});
  Tensor all = device.allocate({num_rows, static_cast<int64_t>(width)}, Dtype::int32, MemoryCategory::activations);
  sequence.all_gather_v(own, all, rows_of_ranks).wait();
  if (device.kind() == tensor::DeviceKind::paper) return {};  // at most, nothing is dropped

  const std::vector<int32_t> gathered = download(all);
  std::vector<ChoicePiece> pieces;
  auto next = gathered.begin();
  for (size_t rank = 0; rank < rows_of_ranks.size(); ++rank) {
    const size_t tp_rank = rank % share.of_ranks.size();
    ChoicePiece piece{.ids = {}, .positions = {}, .rows = share.rows};
    piece.rows.first_row = std::accumulate(share.of_ranks.begin(),
                                           share.of_ranks.begin() + static_cast<std::ptrdiff_t>(tp_rank), int64_t{0});
    for (int64_t row = 0; row < rows_of_ranks[rank]; ++row) {
      piece.ids.insert(piece.ids.end(), next, next + config_.moe.top_k);
      piece.positions.push_back(next[config_.moe.top_k]);
      next += static_cast<std::ptrdiff_t>(width);
    }
    pieces.push_back(std::move(piece));
  }
  const double even =
      static_cast<double>(share.tokens_per_sequence * config_.moe.top_k) / static_cast<double>(config_.moe.num_experts);
  const auto capacity = static_cast<int64_t>(std::ceil(config_.moe.capacity_factor * even));
  return kept_within(capacity, pieces, static_cast<size_t>(sequence.rank()), config_.moe.num_experts);
}

void MoeLayer::run_experts(Ops& ops, const Tensor& x, Saved& saved) const {
  const Routing& routing = *saved.routing;
  Tensor rows = activation_like(x, {routing.tokens.dim(0), x.dim(1)});
  ops.embedding(routing.tokens, x, 0, rows, tensor::Write::overwrite);
  Tensor sorted = exchange_.to_experts(ops, std::move(rows), routing.route);
  Tensor y = experts_.forward(ops, std::move(sorted), routing.route.expert_rows, saved.experts);
  saved.returned = exchange_.from_experts(ops, std::move(y), routing.route);
}

Tensor MoeLayer::backward_input(Ops& ops, Tensor dy, const MicroBatch& batch, const StageContext& context,
                                Saved& saved) const {
  const RowShare share = RowShare::of(batch, context.tokens, groups_);
  const Routing& routing = *saved.routing;
  const Tensor own = dy.rows(share.begin, share.end);
  Tensor d_weights = statistics_like(saved.router.logits, saved.router.weights.shape());
  Tensor d_rows = std::move(saved.returned);
  ops.combine_backward(own, d_rows.view(), routing.places, saved.router.weights, d_rows, d_weights);
  d_rows = exchange_.to_experts(ops, std::move(d_rows), routing.route);
  d_rows = experts_.backward_input(ops, std::move(d_rows), routing.route.expert_rows, saved.experts);
  d_rows = exchange_.from_experts(ops, std::move(d_rows), routing.route);

  Tensor dx = activation_like(own, own.shape());
  const Tensor all_one;
  ops.combine(d_rows, routing.places, all_one, dx);
  router_.backward_input(ops, d_weights, share, batch, saved.router, dx);
  dx = gathered(std::move(dx), share, context.tokens);
  if (shared_) ops.add(shared_->backward_input(ops, std::move(dy), context, saved.shared), dx, dx);
  return dx;
}

void MoeLayer::backward_weight(Ops& ops, const Tensor& x, const MicroBatch& batch, const StageContext& context,
                               Saved& saved) const {
  const RowShare share = RowShare::of(batch, context.tokens, groups_);
  router_.backward_weight(ops, x.rows(share.begin, share.end), saved.routing->chosen, saved.router);
  experts_.backward_weight(ops, saved.routing->route.expert_rows, saved.experts);
  if (shared_) shared_->backward_weight(ops, x, context, saved.shared);
}

/// Where tp ranks hold the same tokens, they get one another's results.
Tensor MoeLayer::gathered(Tensor own, const RowShare& share, TokenSharding tokens) const {
  parallel::Communicator& tp = groups_.tensor.tp;
  if (tokens == TokenSharding::sharded || tp.size() == 1) return own;
  const int64_t all_rows = std::accumulate(share.of_ranks.begin(), share.of_ranks.end(), int64_t{0});
  Tensor all = activation_like(own, own.shape().with(0, all_rows));
  tp.all_gather_v(own, all, share.of_ranks).wait();
  return all;
}

}  // namespace model
