#pragma once
/// y = x W^T + b, where W may be several named matrices that share their input (q, k, v; gate, up): one product.

#include <string>
#include <vector>

#include "parallel/parameter.h"

namespace model {

struct LinearSpec {
  struct Output {
    std::string name;  ///< "layers.0.attention.q": its parameters are <name>.weight and <name>.bias
    int64_t size = 0;
  };
  int64_t in = 0;
  std::vector<Output> outputs;
  bool bias = false;
  double init_std = 0.02;
};

class Linear {
 public:
  Linear(const LinearSpec& spec, parallel::ParameterStore& store);

  int64_t out() const { return out_; }  ///< features of y: all outputs side by side

  /// x [tokens, in] -> y [tokens, out]
  void forward(tensor::Ops& ops, const tensor::Tensor& x, tensor::Tensor& y) const;
  /// dy [tokens, out] -> dx [tokens, in]
  void backward_input(tensor::Ops& ops, const tensor::Tensor& dy, tensor::Tensor& dx) const;
  /// grad += dy^T x, and the sum of dy for the bias
  void backward_weight(tensor::Ops& ops, const tensor::Tensor& dy, const tensor::Tensor& x) const;

 private:
  int64_t out_ = 0;
  parallel::FusedParameter weight_;  // [out, in]
  parallel::FusedParameter bias_;    // [out], or absent
};

}  // namespace model
