#pragma once
/// One run from its start or its newest checkpoint to its last step.

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "data/loader.h"
#include "trainer/agreement.h"
#include "trainer/evaluator.h"
#include "trainer/learner.h"
#include "trainer/log.h"
#include "trainer/lr_schedule.h"
#include "trainer/metrics.h"
#include "trainer/plan.h"
#include "trainer/progress.h"
#include "trainer/run_lock.h"
#include "trainer/saved_state.h"
#include "trainer/stop_request.h"
#include "trainer/trace_file.h"

namespace trainer {

/// What a run stands on. Borrowed.
struct Workbench {
  const Config& config;
  tensor::Backend& backend;
  const RankContext& context;
  std::FILE* console = stdout;  ///< where it tells how it goes; null: nowhere
  std::string node = {};        ///< name of this machine, for messages of many ranks
};

data::DatasetOptions dataset_options(const Config& config);

class TrainingRun {
 public:
  /// Opens the data, builds the model and loads the checkpoint that checkpoint.resume asks for. Writes nothing: all
  /// that can be wrong with a run's inputs is found here.
  explicit TrainingRun(const Workbench& bench);

  /// Trains to the last step, or until a signal asks to stop. A run that was at its last step already writes nothing.
  tensor::ExitCode run();

 private:
  using Clock = std::chrono::steady_clock;

  void start();  // creates the run's folder: from here on files are written
  void say_how_it_starts(const Plan& plan);
  tensor::ExitCode train_steps();
  StepMetrics train_step();
  bool evaluation_is_due() const;
  bool save_is_due() const;
  bool is_time_to_save() const;  // by this rank's clock
  std::vector<std::pair<std::string, double>> rank_metrics();
  static void add_routing(const model::RoutingStatistics::Summary& routing, StepMetrics& metrics);
  void add_bubble(const Bubble& measured, StepMetrics& metrics);
  LogOptions log_options(const std::string& file) const;
  void evaluate(StepMetrics& metrics);
  void save();
  void advance_save();
  void finish_save();
  void guard_save(const std::function<void()>& action);
  void say_saved();
  void finish();
  tensor::ExitCode stop();
  std::string how_it_ended() const;

  bool is_finished() const { return progress_.step >= config_.train.steps; }
  checkpoint::RunInfo run_info() const;

  StopRequest stop_request_;  // first: a signal during a long start is remembered too
  const Config& config_;
  tensor::Backend& backend_;
  const RankContext& context_;
  std::FILE* console_;
  std::string node_;
  data::Dataset dataset_;
  Evaluator evaluator_;
  Learner learner_;
  LrSchedule lr_schedule_;
  checkpoint::Progress progress_;
  std::optional<checkpoint::Resumed> resumed_;
  std::chrono::duration<double> load_time_{0};
  RunLock lock_;  // of rank 0; before what may still publish a checkpoint as it goes
  SavedState saved_state_;
  double flops_per_token_;
  double peak_flops_;

  // Exist from start() on.
  std::optional<Log> log_;
  std::optional<MetricsWriter> metrics_;  // on rank 0
  std::optional<TraceFile> trace_;        // where the config asks for it
  std::optional<ProgressReport> report_;
  std::optional<data::Loader> loader_;
  Agreement agreed_;
  Clock::time_point last_save_time_;
  int64_t last_saved_step_ = 0;
  int64_t num_failed_saves_ = 0;  // since the last good one
  Clock::time_point save_begin_;
  std::chrono::duration<double> save_stall_{0};  // that training waited for saves since the last step's metrics
};

}  // namespace trainer
