#pragma once
/// AdamW over the flat buffers of a parameter store, one fused pass per unit.
///
/// Decay groups: matrices decay (linears, embeddings, head); vectors do not (norm weights, biases). Moments and master
/// weights are fp32 (fp64 for an fp64 model). A bf16 model computes on weights rounded from its fp32 master.

#include <vector>

#include "checkpoint/state.h"
#include "parallel/parameter.h"
#include "trainer/config.h"

namespace trainer {

class Optimizer {
 public:
  /// `store` is allocated and must outlive the optimizer. Moments start at 0; the master weights are those that `seed`
  /// draws, before rounding.
  Optimizer(const OptimizerConfig& config, parallel::ParameterStore& store, tensor::Ops& ops, uint64_t seed);

  /// L2 norm of the whole gradient. Not finite when any element is not.
  double grad_norm(tensor::Ops& ops) const;

  struct Step {
    int64_t step = 1;  ///< counts from 1
    double lr = 0;
    double grad_scale = 1;  ///< what clipping multiplies gradients by
  };
  void update(tensor::Ops& ops, const Step& step);

  /// "weights/NAME" (the master where there is one), "exp_avg/NAME", "exp_avg_sq/NAME" of every parameter: what a
  /// checkpoint holds. The tensors are views that live as long as the optimizer.
  std::vector<checkpoint::NamedTensor> state();
  /// After `state()` was loaded: rounds the master weights into the model's.
  void refresh_values(tensor::Ops& ops);

 private:
  struct Unit {
    parallel::ParameterUnit* parameters;
    tensor::Tensor master;  // absent: the model's own values are the master
    tensor::Tensor exp_avg, exp_avg_sq;
  };
  /// Neighbours of a unit that decay alike, as one range [begin, end) of its flat buffers.
  struct Range {
    Unit* unit;
    int64_t begin, end;
    parallel::WeightDecay weight_decay;
  };

  void add_ranges(Unit& unit);
  void draw_master(const parallel::ParameterUnit& parameters, tensor::Tensor& master, uint64_t seed) const;

  OptimizerConfig config_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<Range> ranges_;
  std::vector<std::unique_ptr<tensor::Tensor>> state_views_;
};

}  // namespace trainer
