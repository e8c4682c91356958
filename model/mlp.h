#pragma once
/// Feed-forward: up product (gate and up side by side for gated activations), activation, down product.

#include "model/linear.h"
#include "model/stage_context.h"

namespace model {

class Mlp {
 public:
  struct Saved {
    tensor::Tensor up;         // [tokens, ffn/tp] or gate | up [tokens, 2 * ffn/tp]; absent after backward_input
    tensor::Tensor activated;  // [tokens, ffn/tp]; absent after forget_activated()
    tensor::Tensor dy, d_up;   // [tokens, ...], from backward_input, for backward_weight

    void forget_activated() { activated = {}; }  ///< selective recompute: backward makes it again from `up`
  };

  Mlp(const ModelConfig& config, const std::string& name, const parallel::TensorParallel& tensor_parallel,
      parallel::ParameterStore& store);

  /// x [tokens held, hidden] (normed) -> y [tokens held, hidden]
  tensor::Tensor forward(tensor::Ops& ops, const tensor::Tensor& x, const StageContext& context, Saved& saved) const;
  /// Makes what forward saved, without its result: no down product.
  void recompute(tensor::Ops& ops, const tensor::Tensor& x, const StageContext& context, Saved& saved) const;
  tensor::Tensor backward_input(tensor::Ops& ops, tensor::Tensor dy, const StageContext& context, Saved& saved) const;
  /// x is the input of forward.
  void backward_weight(tensor::Ops& ops, const tensor::Tensor& x, const StageContext& context, Saved& saved) const;

 private:
  void activate(tensor::Ops& ops, Saved& saved) const;
  int64_t ffn_size(const Saved& saved) const;

  tensor::Activation activation_;
  ColumnParallelLinear up_;  // gate and up, or up
  RowParallelLinear down_;
};

}  // namespace model
