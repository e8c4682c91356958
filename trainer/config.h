#pragma once
/// A run config: one plain struct per TOML table, defaults beside the fields. config_keys.h lists the keys and their
/// ranges, config_reader.h reads and writes them. Sizes the user never sets are computed elsewhere, not kept here.

#include <cstdint>
#include <string>

#include "checkpoint/config.h"
#include "data/config.h"
#include "model/config.h"
#include "parallel/config.h"
#include "tensor/dtype.h"

namespace trainer {

/// [run]
struct RunConfig {
  std::string name;     ///< letters, digits, '.', '_', '-'; empty: the config file's name without .toml
  std::string dir;      ///< folder of everything the run writes; empty: runs/NAME
  int64_t seed = 1234;  ///< initial weights, data order, dropout
};

/// [train]
struct TrainConfig {
  int64_t steps = 0;               ///< required: optimizer steps of the whole run
  int64_t global_batch_size = 32;  ///< sequences per optimizer step, over all ranks
  int64_t micro_batch_size = 0;    ///< sequences per forward pass of one rank; 0: all of the rank's share at once
  double max_grad_norm = 1.0;      ///< gradients are scaled down to this global L2 norm; 0: no clipping
  model::Recompute recompute = model::Recompute::none;  ///< activations dropped in forward, recomputed in backward
  int64_t eval_every = 0;                               ///< steps between evaluations, and one at the end; 0: never
  int64_t eval_steps = 20;  ///< batches of global_batch_size per evaluation, always the same ones
};

/// [precision]
struct PrecisionConfig {
  tensor::Dtype compute = tensor::Dtype::fp32;  ///< fp32, bf16 (with fp32 master weights), fp64 (CPU only)
};

enum class OptimizerName { adamw };

/// [optimizer]
struct OptimizerConfig {
  OptimizerName name = OptimizerName::adamw;
  double lr = 3e-4;  ///< peak, after warmup
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;  ///< decoupled; on matrices only: not on norms and biases
};

enum class LrScheduleKind { constant, linear, cosine, wsd };

/// [lr_schedule] All kinds: linear from 0 to optimizer.lr over warmup_steps.
struct LrScheduleConfig {
  LrScheduleKind kind = LrScheduleKind::cosine;
  int64_t warmup_steps = 0;
  /// linear, cosine: steps from lr to min_lr after warmup, then min_lr; 0: all that are left.
  /// wsd: the last steps of the run, lr is constant before them; 0: a tenth of train.steps. constant: 0.
  int64_t decay_steps = 0;
  double min_lr = 0;  ///< where the decay ends
};

/// [log]
struct LogConfig {
  int64_t every_steps = 10;  ///< steps between printed lines; metrics.jsonl has every step
  bool trace = false;        ///< times every pass and message, into trace/trace.json and metrics.jsonl
};

/// [cluster] The numbers that planning and MFU need.
struct ClusterConfig {
  double peak_tflops = 0;  ///< of one device at precision.compute, the 100 % of MFU; 0: known from the device
};

struct Config {
  RunConfig run;
  model::ModelConfig model;
  parallel::ParallelConfig parallel;
  TrainConfig train;
  PrecisionConfig precision;
  OptimizerConfig optimizer;
  LrScheduleConfig lr_schedule;
  data::DataConfig data;
  checkpoint::CheckpointConfig checkpoint;
  LogConfig log;
  ClusterConfig cluster;
};

}  // namespace trainer
