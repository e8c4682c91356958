#include "model/router_layer.h"

#include "model/allocate.h"
#include "model/routing_statistics.h"

namespace model {

using parallel::Initializer;
using parallel::ParameterSpec;
using parallel::WeightDecay;
using tensor::Dtype;
using tensor::Ops;
using tensor::Tensor;
using tensor::Write;

namespace {

/// A router sees a part of the tokens wherever tp ranks share them.
ParameterSpec partial_over_tp(ParameterSpec spec, const parallel::TensorParallel& tensor_parallel) {
  spec.is_primary = tensor_parallel.is_primary();
  spec.partial_grad = &tensor_parallel.tp;
  return spec;
}

std::vector<double> download(const Tensor& x) {
  std::vector<double> host(static_cast<size_t>(x.numel()));
  const auto copy_as = [&]<class T>(std::vector<T> values) {
    x.device().copy_to_host(x, values.data());
    for (size_t i = 0; i < host.size(); ++i)
      host[i] = static_cast<double>(static_cast<tensor::compute_t<T>>(values[i]));
  };
  if (x.dtype() == Dtype::fp64) copy_as(std::vector<double>(host.size()));
  if (x.dtype() == Dtype::fp32) copy_as(std::vector<float>(host.size()));
  if (x.dtype() == Dtype::bf16) copy_as(std::vector<tensor::bfloat16>(host.size()));
  return host;
}

template <class T>
void upload_as(const std::vector<int64_t>& values, Tensor& to) {
  const std::vector<T> host(values.begin(), values.end());
  to.device().copy_from_host(host.data(), to);
}

}  // namespace

RowShare RowShare::of(const MicroBatch& batch, parallel::TokenSharding tokens, const parallel::LayerGroups& groups) {
  const parallel::Communicator& tp = groups.tensor.tp;
  const int64_t num_tokens = batch.num_tokens(), sequences = std::max<int64_t>(1, batch.num_sequences);
  const auto begin_of = [&](int64_t rank) { return num_tokens * rank / tp.size(); };
  RowShare share;
  for (int rank = 0; rank < tp.size(); ++rank) share.of_ranks.push_back(begin_of(rank + 1) - begin_of(rank));
  const int64_t first = begin_of(tp.rank());
  share.rows = {.first_row = first,
                .rows_per_sequence = std::max<int64_t>(1, num_tokens / sequences),
                .num_sequences = sequences};
  share.begin = tokens == parallel::TokenSharding::whole ? first : 0;
  share.end = share.begin + share.of_ranks[static_cast<size_t>(tp.rank())];
  share.tokens_per_sequence = share.rows.rows_per_sequence * groups.sequence.sp.size();
  return share;
}

RouterLayer::RouterLayer(const ModelConfig& config, int64_t layer, const std::string& name,
                         const parallel::LayerGroups& groups, parallel::ParameterStore& store)
    : moe_(config.moe),
      layer_(layer),
      router_{.score = moe_.router,
              .top_k = moe_.top_k,
              .normalize = moe_.normalize_top_k,
              .scaling = moe_.routed_scaling,
              .num_groups = moe_.num_groups,
              .top_k_groups = moe_.top_k_groups},
      sequence_(groups.expert.sequence) {
  weight_ = &store.add(partial_over_tp({.name = name + ".weight",
                                        .shape = {moe_.num_experts, config.hidden_size},
                                        .init = {Initializer::Kind::normal, config.init_std},
                                        .weight_decay = WeightDecay::yes},
                                       groups.tensor));
  if (moe_.balance != Balance::bias) return;
  const double share = static_cast<double>(moe_.top_k) / static_cast<double>(moe_.num_experts);
  bias_ = &store.add(partial_over_tp({.name = name + ".bias",
                                      .shape = {moe_.num_experts},
                                      .init = {},
                                      .weight_decay = WeightDecay::no,
                                      .update = parallel::Update::balance,
                                      .balance = {.rate = moe_.bias_update_rate, .share = share}},
                                     groups.tensor));
}

void RouterLayer::forward(Ops& ops, const Tensor& x, const RowShare& share, const MicroBatch& batch,
                          const StageContext& context, Saved& saved) const {
  saved.logits = statistics_like(x, {x.dim(0), moe_.num_experts});
  ops.linear(x, weight_->value(), {}, saved.logits);
  saved.ids = x.device().allocate({x.dim(0), moe_.top_k}, Dtype::int32, tensor::MemoryCategory::activations);
  saved.weights = statistics_like(x, {x.dim(0), moe_.top_k});
  Tensor bias;
  if (bias_) {
    bias = statistics_like(x, {moe_.num_experts});
    ops.cast(bias_->value(), bias);
  }
  ops.router(router_, saved.logits, bias, saved.ids, saved.weights);
  if (context.mode != Mode::train) return;
  if (has_aux_loss()) sum_sequences(ops, share, saved);
  if (context.statistics) note_losses(ops, share, batch, saved, *context.statistics);
}

void RouterLayer::sum_sequences(Ops& ops, const RowShare& share, Saved& saved) const {
  saved.sums = statistics_like(saved.logits, {2, share.rows.num_sequences, moe_.num_experts});
  ops.router_sums(router_, saved.logits, saved.ids, share.rows, saved.sums);
  sequence_.all_reduce(saved.sums, parallel::Reduction::sum).wait();
}

/// coef * num_experts * sum over experts of (share of the choices) * (mean share of the scores), for every sequence.
double RouterLayer::aux_loss(const Tensor& sums, const RowShare& share) const {
  const std::vector<double> host = download(sums);
  const size_t per_kind = host.size() / 2;
  double sum = 0;
  for (size_t i = 0; i < per_kind; ++i) sum += host[i] * host[per_kind + i];
  const auto tokens = static_cast<double>(share.tokens_per_sequence);
  return moe_.aux_loss_coef * static_cast<double>(moe_.num_experts) * sum /
         (tokens * tokens * static_cast<double>(moe_.top_k));
}

double RouterLayer::z_scale(const RowShare& share, const MicroBatch& batch) const {
  return moe_.z_loss_coef / static_cast<double>(batch.step_sequences * share.tokens_per_sequence);
}

void RouterLayer::note_losses(Ops& ops, const RowShare& share, const MicroBatch& batch, const Saved& saved,
                              RoutingStatistics& statistics) const {
  RoutingStatistics::Layer layer = statistics.layer(layer_);
  if (saved.sums && sequence_.rank() == 0) {  // the same on all its ranks
    layer.aux_loss += aux_loss(saved.sums, share) / static_cast<double>(batch.step_sequences);
  }
  if (moe_.z_loss_coef > 0) layer.z_loss += z_scale(share, batch) * ops.router_z(saved.logits);
}

void RouterLayer::backward_input(Ops& ops, const Tensor& d_weights, const RowShare& share, const MicroBatch& batch,
                                 Saved& saved, Tensor& dx) const {
  const auto tokens = static_cast<double>(share.tokens_per_sequence);
  const Tensor counts = saved.sums ? saved.sums.rows(0, 1) : Tensor();
  const double aux = moe_.aux_loss_coef * static_cast<double>(moe_.num_experts) /
                     (tokens * tokens * static_cast<double>(moe_.top_k * batch.step_sequences));
  const tensor::RouterLosses losses{.counts = counts, .scale_of_counts = aux, .scale_of_z = z_scale(share, batch)};
  saved.d_logits = statistics_like(saved.logits, saved.logits.shape());
  ops.router_backward(router_, saved.logits, saved.ids, d_weights, losses, share.rows, saved.d_logits);
  ops.linear_backward_input(saved.d_logits, weight_->value(), dx, Write::accumulate);
}

void RouterLayer::backward_weight(Ops& ops, const Tensor& x, const std::vector<int64_t>& chosen, Saved& saved) const {
  Tensor d_weight = weight_->grad();
  Tensor no_bias;
  ops.linear_backward_weight(saved.d_logits, x, d_weight, no_bias, weight_->next_grad_write());
  if (!bias_) return;
  Tensor counts = statistics_like(saved.logits, {moe_.num_experts});
  counts.dtype() == Dtype::fp64 ? upload_as<double>(chosen, counts) : upload_as<float>(chosen, counts);
  Tensor sum = bias_->grad();
  if (bias_->next_grad_write() == Write::overwrite) {
    ops.device().copy(counts, sum);
  } else {
    ops.add(sum, counts, sum);
  }
}

void RouterLayer::add_bias(const parallel::ParameterStore& store, RoutingStatistics& statistics) const {
  if (!bias_) return;
  const parallel::Range owned = store.owned_range(*bias_);
  if (owned.size() == 0) return;
  const parallel::ParameterUnit& unit = bias_->unit();
  const int64_t begin = bias_->offset() + owned.begin - unit.own.begin;
  const Tensor own = unit.own_values.rows(begin, begin + owned.size());
  const std::vector<double> values = download(own);
  double* const bias = statistics.layer(layer_).bias + owned.begin;
  for (size_t i = 0; i < values.size(); ++i) bias[i] += values[i];
}

}  // namespace model
