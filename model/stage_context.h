#pragma once
/// What the layers of a stage share in one kind of pass: training, evaluating, decoding.

#include <cstdint>

#include "model/config.h"
#include "parallel/tensor_parallel.h"

namespace model {

class RoutingStatistics;

enum class Mode { train, evaluate };

struct StageContext {
  Mode mode = Mode::evaluate;
  double dropout = 0;  ///< 0 outside training
  uint64_t dropout_seed = 0;
  Recompute recompute = Recompute::none;
  parallel::TokenSharding tokens = parallel::TokenSharding::whole;  ///< between matrix products
  RoutingStatistics* statistics = nullptr;                          ///< that routers add to; null: nobody asks
  tensor::Tensor rope_table;                                        ///< absent without RoPE
};

}  // namespace model
