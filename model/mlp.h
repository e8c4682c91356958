#pragma once
/// Feed-forward: up product (gate and up side by side for gated activations), activation, down product.

#include "model/config.h"
#include "model/linear.h"

namespace model {

class Mlp {
 public:
  struct Saved {
    tensor::Tensor up;         // [tokens, ffn] or gate | up [tokens, 2 * ffn]; absent after backward_input
    tensor::Tensor activated;  // [tokens, ffn]; absent after forget_activated()
    tensor::Tensor dy, d_up;   // from backward_input, for backward_weight

    void forget_activated() { activated = {}; }  ///< selective recompute: backward makes it again from `up`
  };

  Mlp(const ModelConfig& config, const std::string& name, parallel::ParameterStore& store);

  /// x [tokens, hidden] (normed) -> y [tokens, hidden]
  tensor::Tensor forward(tensor::Ops& ops, const tensor::Tensor& x, Saved& saved) const;
  /// Makes what forward saved, without its result: no down product.
  void recompute(tensor::Ops& ops, const tensor::Tensor& x, Saved& saved) const;
  tensor::Tensor backward_input(tensor::Ops& ops, tensor::Tensor dy, Saved& saved) const;
  /// x is the input of forward.
  void backward_weight(tensor::Ops& ops, const tensor::Tensor& x, Saved& saved) const;

 private:
  void activate(tensor::Ops& ops, Saved& saved) const;
  int64_t ffn_size(const Saved& saved) const;

  tensor::Activation activation_;
  Linear up_;  // gate and up, or up
  Linear down_;
};

}  // namespace model
