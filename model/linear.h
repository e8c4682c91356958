#pragma once
/// y = x W^T + b, where W may be several named matrices that share their input (q, k, v; gate, up): one product.
///
/// Matrices are cut over the ranks of a tensor-parallel group, in pairs: ColumnParallelLinear leaves every rank a part
/// of the features of y, RowParallelLinear takes them up and sums. "Tokens held" is what TokenSharding says; [tokens]
/// alone is all of them.

#include <string>
#include <vector>

#include "parallel/parameter_store.h"
#include "parallel/tensor_parallel.h"

namespace model {

struct LinearSpec {
  struct Output {
    std::string name;  ///< "layers.0.attention.q": its parameters are <name>.weight and <name>.bias
    int64_t size = 0;
    /// Neighbouring ranks that hold the same part of this output (kv heads fewer than ranks): each then finds a part of
    /// its gradient. Null, or a group of one: no other rank does.
    parallel::Communicator* replicas = nullptr;
  };
  int64_t in = 0;
  std::vector<Output> outputs;
  bool bias = false;
  double init_std = 0.02;
};

/// Every rank holds rows of each matrix, and makes these features of y.
class ColumnParallelLinear {
 public:
  ColumnParallelLinear(const LinearSpec& spec, const parallel::TensorParallel& tensor_parallel,
                       parallel::ParameterStore& store);

  int64_t out() const { return out_; }  ///< features of y on this rank: its parts of all outputs side by side

  /// x [tokens held, in] -> y [tokens, out/tp]
  tensor::Tensor forward(tensor::Ops& ops, const tensor::Tensor& x, parallel::TokenSharding tokens) const;
  /// dy [tokens, out/tp] -> dx [tokens held, in]
  tensor::Tensor backward_input(tensor::Ops& ops, const tensor::Tensor& dy, parallel::TokenSharding tokens) const;
  /// Gathers x again: keeping it would cost tokens * in elements a layer.
  void backward_weight(tensor::Ops& ops, const tensor::Tensor& dy, const tensor::Tensor& x,
                       parallel::TokenSharding tokens) const;

 private:
  parallel::Communicator& tp_;
  int64_t in_;
  int64_t out_ = 0;
  parallel::FusedParameter weight_;  // [out/tp, in]
  parallel::FusedParameter bias_;    // [out/tp], or absent
};

/// Every rank holds columns of the matrix, and makes a part of the sum that y is. One output.
class RowParallelLinear {
 public:
  RowParallelLinear(const LinearSpec& spec, const parallel::TensorParallel& tensor_parallel,
                    parallel::ParameterStore& store);

  /// x [tokens, in/tp] -> y [tokens held, out]
  tensor::Tensor forward(tensor::Ops& ops, const tensor::Tensor& x, parallel::TokenSharding tokens) const;
  /// dy [tokens held, out] -> dx [tokens, in/tp]; dy becomes [tokens, out], as backward_weight takes it.
  tensor::Tensor backward_input(tensor::Ops& ops, tensor::Tensor& dy, parallel::TokenSharding tokens) const;
  void backward_weight(tensor::Ops& ops, const tensor::Tensor& dy, const tensor::Tensor& x) const;

 private:
  parallel::Communicator& tp_;
  parallel::FusedParameter weight_;  // [out, in/tp]
  parallel::FusedParameter bias_;    // [out], the same on every rank; or absent
};

}  // namespace model
