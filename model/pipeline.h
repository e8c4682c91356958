#pragma once
/// The stages of one pipeline rank, and the executor that walks a schedule over them. One rank that accumulates the
/// gradients of micro-batches is the pipeline of one stage: there is no other training loop.

#include <memory>
#include <vector>

#include "model/routing_statistics.h"
#include "model/stage.h"
#include "parallel/event_log.h"
#include "parallel/schedule.h"

namespace model {

struct PipelineOptions {
  StageOptions stage;
  std::vector<StageSpan> spans;       ///< of all stages
  std::vector<int> rank_of_stage;     ///< in pp
  parallel::EventLog* log = nullptr;  ///< null: nothing is written down
};

/// What a step trains on, the same on all ranks of a pipeline. Each stage puts a micro-batch on the device when it
/// comes to it.
struct StepBatches {
  std::vector<HostBatch> micro_batches;
  int64_t step = 0;            ///< keys dropout
  double grad_scale = 1;       ///< 1 / (valid targets of the whole step)
  int64_t step_sequences = 1;  ///< of the whole step
};

/// How long one walk took, in seconds.
struct WalkTimes {
  double span = 0;  ///< from its start to the end of this rank's last pass
  double busy = 0;  ///< in passes; waiting for neighbours is not
};

class Pipeline {
 public:
  /// Registers the parameters of this rank's stages. `pp`, groups and store outlive it.
  Pipeline(const ModelConfig& config, const PipelineOptions& options, const parallel::LayerGroups& groups,
           parallel::Communicator& pp, parallel::ParameterStore& store);

  void prepare(tensor::Device& device, tensor::Dtype dtype);  ///< once, before the first pass

  /// One step of `schedule` (with its messages) up to its gradients. `peak_live`: how many micro-batches this rank
  /// keeps at once, as the simulator says. -> the sum of token losses on the rank of the last stage, 0 on others.
  double train(tensor::Ops& ops, const parallel::Schedule& schedule, int peak_live, const StepBatches& batches);
  /// A schedule of forwards, without dropout.
  double evaluate(tensor::Ops& ops, const parallel::Schedule& schedule, const StepBatches& batches);

  struct Cache {
    std::vector<KvCache> of_stages;
    int64_t length() const { return of_stages.front().length; }
    void restart();
  };
  Cache make_cache(int64_t capacity, tensor::Dtype dtype, tensor::Device& device) const;
  /// Logits acc [1, vocab_size] after the last of the new tokens, on every rank.
  tensor::Tensor decode(tensor::Ops& ops, const MicroBatch& batch, Cache& cache) const;

  /// Of the last training step and this rank's part of it: adds up over the world. Biases are those of the next step
  /// once the optimizer is through.
  RoutingStatistics routing_statistics() const;
  const WalkTimes& last_walk() const { return times_; }
  std::vector<const Stage*> stages() const;  ///< of this rank, in order of the model

 private:
  class Walk;
  bool exists(int stage) const { return 0 <= stage && stage < std::ssize(stages_); }
  bool is_here(int stage) const { return stages_[static_cast<size_t>(stage)] != nullptr; }
  bool is_elsewhere(int stage) const { return exists(stage) && !is_here(stage); }
  const Stage& at(int stage) const { return *stages_[static_cast<size_t>(stage)]; }
  int rank_of(int stage) const { return options_.rank_of_stage[static_cast<size_t>(stage)]; }

  ModelConfig config_;
  PipelineOptions options_;
  parallel::LayerGroups groups_;
  parallel::Communicator& pp_;
  parallel::ParameterStore& store_;
  tensor::Dtype dtype_ = tensor::Dtype::fp32;
  std::unique_ptr<RoutingStatistics> statistics_;  // stages keep its address
  std::vector<std::unique_ptr<Stage>> stages_;     // by number; null: on another rank
  WalkTimes times_;
};

}  // namespace model
