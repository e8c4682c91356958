#pragma once
/// AdamW over the flat buffers of a parameter store, one fused pass per stretch that decays alike; biases of routers
/// move by counts instead. Under ZeRO the state of a unit covers this rank's cut of it; nothing else here differs.
///
/// Decay groups: matrices decay (linears, embeddings, head); vectors do not (norm weights, biases). Moments and master
/// weights are fp32 (fp64 for an fp64 model). A bf16 model computes on weights rounded from its fp32 master.

#include <memory>
#include <string>
#include <vector>

#include "parallel/parameter_store.h"
#include "trainer/config.h"

namespace trainer {

/// A stretch of one kind of state of one parameter that this rank keeps.
struct StateFragment {
  std::string kind;  ///< "weights" (the master where there is one), "exp_avg", "exp_avg_sq"
  const parallel::Parameter* parameter = nullptr;
  parallel::Range range;  ///< of the parameter's stored box
  tensor::Tensor values;  ///< [range.size()], a view
};

class Optimizer {
 public:
  /// `store` is allocated and must outlive the optimizer. Moments start at 0; the master weights are those that `seed`
  /// draws, before rounding.
  Optimizer(const OptimizerConfig& config, parallel::ParameterStore& store, tensor::Ops& ops, uint64_t seed);

  struct Step {
    int64_t step = 1;  ///< counts from 1
    double lr = 0;
    double grad_scale = 1;  ///< what clipping multiplies gradients by
    int64_t tokens = 0;     ///< of the whole step: what counts of Update::balance are shares of
  };
  /// Updates this rank's part; the store publishes it.
  void update(tensor::Ops& ops, const Step& step);

  /// Everything that a checkpoint holds of this rank, in order of registration.
  std::vector<StateFragment> state() const;
  /// After the state was loaded: rounds the master weights into the model's.
  void refresh_values(tensor::Ops& ops);

 private:
  /// The state of the part of a unit that this rank keeps. All tensors [range.size()].
  struct UnitState {
    parallel::ParameterUnit* unit = nullptr;
    parallel::Range range;  // of the unit's flat buffer
    tensor::Tensor master;  // absent: the model's own values are the master
    tensor::Tensor exp_avg, exp_avg_sq;
    tensor::Tensor values;  // a view of the store's
  };
  /// Neighbours that are updated alike: elements [begin, end) of a UnitState's tensors.
  struct Stretch {
    UnitState* state;
    parallel::Range range;
    const parallel::ParameterSpec* spec;  ///< of the first of them
  };

  void add_state(parallel::ParameterUnit& unit, tensor::Ops& ops, uint64_t seed);
  void add_stretches(UnitState& state);
  static bool update_alike(const parallel::ParameterSpec& a, const parallel::ParameterSpec& b);
  void update(tensor::Ops& ops, const Step& step, const Stretch& stretch) const;

  OptimizerConfig config_;
  parallel::ParameterStore& store_;
  std::vector<std::unique_ptr<UnitState>> states_;
  std::vector<Stretch> stretches_;
};

}  // namespace trainer
