#pragma once
/// Which experts each token takes, and with what weights. Computes in fp32 (fp64 for fp64): near ties decide where a
/// token goes.
///
/// A rank sees a part of the tokens of its sequences, so that gradients are parts of sums over tp too, and counts per
/// sequence are summed over the ranks that hold the sequences. Its losses are no part of the reported loss: only their
/// gradients exist. They are sums over the sequences and tokens of a step, so that no layout changes them.

#include <vector>

#include "model/config.h"
#include "model/micro_batch.h"
#include "model/stage_context.h"
#include "parallel/layer_groups.h"

namespace model {

/// The rows that a rank routes: its share of the tokens held, as equal as can be where all tp ranks hold the same.
struct RowShare {
  tensor::SequenceRows rows;
  int64_t begin = 0, end = 0;       ///< of the tokens held
  std::vector<int64_t> of_ranks;    ///< rows of each tp rank
  int64_t tokens_per_sequence = 0;  ///< over all ranks that hold parts of it

  static RowShare of(const MicroBatch& batch, parallel::TokenSharding tokens, const parallel::LayerGroups& groups);
  int64_t size() const { return end - begin; }
};

class RouterLayer {
 public:
  /// All of it is kept under any recompute setting: decisions are made once.
  struct Saved {
    tensor::Tensor logits;    // acc [rows, num_experts]
    tensor::Tensor ids;       // int32 [rows, top_k]
    tensor::Tensor weights;   // acc [rows, top_k]
    tensor::Tensor sums;      // acc [2, sequences, num_experts], of whole sequences: only with an aux loss
    tensor::Tensor d_logits;  // from backward_input, for backward_weight
  };

  RouterLayer(const ModelConfig& config, int64_t layer, const std::string& name, const parallel::LayerGroups& groups,
              parallel::ParameterStore& store);

  /// x [rows, hidden]
  void forward(tensor::Ops& ops, const tensor::Tensor& x, const RowShare& share, const MicroBatch& batch,
               const StageContext& context, Saved& saved) const;
  /// d_weights acc [rows, top_k]; adds to dx [rows, hidden].
  void backward_input(tensor::Ops& ops, const tensor::Tensor& d_weights, const RowShare& share, const MicroBatch& batch,
                      Saved& saved, tensor::Tensor& dx) const;
  /// x is the input of forward; chosen [num_experts]: choices of each expert.
  void backward_weight(tensor::Ops& ops, const tensor::Tensor& x, const std::vector<int64_t>& chosen,
                       Saved& saved) const;

  /// The elements of the bias that this rank alone counts.
  void add_bias(const parallel::ParameterStore& store, RoutingStatistics& statistics) const;

 private:
  bool has_aux_loss() const { return moe_.balance == Balance::aux && moe_.aux_loss_coef > 0; }
  double z_scale(const RowShare& share, const MicroBatch& batch) const;
  void sum_sequences(tensor::Ops& ops, const RowShare& share, Saved& saved) const;
  void note_losses(tensor::Ops& ops, const RowShare& share, const MicroBatch& batch, const Saved& saved,
                   RoutingStatistics& statistics) const;
  double aux_loss(const tensor::Tensor& sums, const RowShare& share) const;

  MoeConfig moe_;
  int64_t layer_;
  tensor::Router router_;
  parallel::Communicator& sequence_;
  parallel::Parameter* weight_;          // [num_experts, hidden]
  parallel::Parameter* bias_ = nullptr;  // [num_experts], of balance = bias
};

}  // namespace model
