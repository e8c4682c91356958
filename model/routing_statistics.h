#pragma once
/// What the routers of one optimizer step did: host-side sums, which the ranks add up once a step.

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace model {

class RoutingStatistics {
 public:
  explicit RoutingStatistics(const ModelConfig& config);

  /// Of one layer.
  struct Layer {
    double* tokens;  ///< [num_experts]: choices of each expert
    double* bias;    ///< [num_experts]: what the choices were made with
    double& dropped;
    double& aux_loss;
    double& z_loss;
  };
  Layer layer(int64_t layer);

  void clear();
  std::vector<double>& sums() { return sums_; }  ///< of all layers with experts: adds up over ranks; may be empty

  /// Over all layers and experts; losses are summed over layers, as the router's gradients see them.
  struct Summary {
    double tokens_min = 0, tokens_max = 0, tokens_mean = 0;  ///< per expert of a layer
    double entropy = 0;           ///< of the shares of tokens, the mean over layers; 1: all experts alike
    double dropped_fraction = 0;  ///< of all choices
    double aux_loss = 0, z_loss = 0;
    double bias_min = 0, bias_max = 0;
  };
  Summary summary();

 private:
  int64_t num_experts_;
  std::vector<int64_t> place_;  // of each layer of the model among those with experts; -1: has none
  std::vector<double> sums_;
};

}  // namespace model
