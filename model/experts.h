#pragma once
/// The experts of one rank: as many feed-forward layers, each over rows of its own. Parameters are named per expert
/// ("layers.3.mlp.experts.5.up.weight"), so that a weight starts, and is saved, the same on any layout.
/// expert_tp ranks each hold a part of every expert's hidden units, and find a part of the sum that y is.

#include <vector>

#include "model/config.h"
#include "parallel/layer_groups.h"

namespace model {

class Experts {
 public:
  struct Saved {
    tensor::Tensor x;          // [rows, hidden]
    tensor::Tensor up;         // [rows, ffn/expert_tp] or gate | up; absent after backward_input
    tensor::Tensor activated;  // [rows, ffn/expert_tp]; absent after selective recompute dropped it
    tensor::Tensor dy, d_up;   // from backward_input, for backward_weight
  };
  /// Rows of each expert: rows of operands are sorted by expert.
  using RowCounts = std::vector<int64_t>;

  /// Of experts [first, first + count). They join the unit that is open.
  Experts(const ModelConfig& config, const std::string& name, int64_t first, int64_t count,
          parallel::Communicator& expert_tp, parallel::ParameterStore& store);

  /// x [rows, hidden] -> a part of y [rows, hidden]
  tensor::Tensor forward(tensor::Ops& ops, tensor::Tensor x, const RowCounts& rows, Saved& saved) const;
  /// dy [rows, hidden] -> a part of dx [rows, hidden]
  tensor::Tensor backward_input(tensor::Ops& ops, tensor::Tensor dy, const RowCounts& rows, Saved& saved) const;
  /// Of every expert, those without rows too: all ranks that hold it then have something to sum.
  void backward_weight(tensor::Ops& ops, const RowCounts& rows, Saved& saved) const;

 private:
  /// [out, in] of each, and biases where the model has them.
  struct Expert {
    parallel::FusedParameter up, up_bias;  // gate and up, or up
    parallel::FusedParameter down, down_bias;
  };
  void add_expert(const ModelConfig& config, const std::string& name, parallel::ParameterStore& store);
  void activate(tensor::Ops& ops, Saved& saved) const;
  int64_t ffn_here() const;

  tensor::Activation activation_;
  parallel::Communicator& expert_tp_;
  int64_t hidden_size_, ffn_size_;
  std::vector<Expert> experts_;
};

}  // namespace model
