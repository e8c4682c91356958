#pragma once
/// LayerNorm or RMSNorm with its weights. `size` is the normalised last dim: hidden_size, or head_dim for qk-norm.

#include <string>

#include "model/config.h"
#include "parallel/parameter_store.h"
#include "parallel/tensor_parallel.h"

namespace model {

struct NormSpec {
  std::string name;  ///< parameters <name>.weight and, for LayerNorm with biases, <name>.bias
  int64_t size = 0;
  tensor::Norm norm;
  bool bias = false;
  /// Over whose ranks its gradient is a sum, where one rank sees a part of the rows (tokens or heads); null: all rows.
  parallel::Communicator* partial_grad = nullptr;
  bool is_primary = true;  ///< the one of the ranks that hold the same norm that counts and saves it
};

/// A norm of the residual stream, of the tokens held.
NormSpec hidden_norm(const ModelConfig& config, const std::string& name,
                     const parallel::TensorParallel& tensor_parallel);

class NormLayer {
 public:
  NormLayer(const NormSpec& spec, parallel::ParameterStore& store);

  /// y = norm(x). stats acc [rows of x, 2], for the backward passes.
  void forward(tensor::Ops& ops, const tensor::Tensor& x, tensor::Tensor& y, tensor::Tensor& stats) const;
  /// sum = x + residual; y = norm(sum).
  void forward_add(tensor::Ops& ops, const tensor::Tensor& x, const tensor::Tensor& residual, tensor::Tensor& sum,
                   tensor::Tensor& y, tensor::Tensor& stats) const;
  /// dx (+)= gradient through the norm; x and stats are those of the forward pass.
  void backward_input(tensor::Ops& ops, const tensor::Tensor& dy, const tensor::Tensor& x, const tensor::Tensor& stats,
                      tensor::Tensor& dx, tensor::Write write) const;
  void backward_weight(tensor::Ops& ops, const tensor::Tensor& dy, const tensor::Tensor& x,
                       const tensor::Tensor& stats) const;

 private:
  tensor::Tensor bias_value() const;

  tensor::Norm norm_;
  parallel::Parameter* weight_ = nullptr;
  parallel::Parameter* bias_ = nullptr;  // null: none
};

}  // namespace model
