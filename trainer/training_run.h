#pragma once
/// One run from its start or its newest checkpoint to its last step.

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "checkpoint/directory.h"
#include "data/loader.h"
#include "trainer/evaluator.h"
#include "trainer/learner.h"
#include "trainer/log.h"
#include "trainer/lr_schedule.h"
#include "trainer/metrics.h"
#include "trainer/progress.h"
#include "trainer/stop_request.h"

namespace trainer {

/// What a run stands on. Borrowed.
struct Workbench {
  const Config& config;
  tensor::Backend& backend;
  std::FILE* console = stdout;  ///< where it tells how it goes; null: nowhere
};

data::DatasetOptions dataset_options(const Config& config);

/// Fills `state`, which is the learner's, from the checkpoint that checkpoint.resume names, else from the newest of the
/// run. Nothing where there is none; CheckpointError where what there is cannot be used.
std::optional<checkpoint::Resumed> load_checkpoint(const Config& config, Learner& learner,
                                                   std::vector<checkpoint::NamedTensor>& state);

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
  void say_how_it_starts();
  tensor::ExitCode train_steps();
  StepMetrics train_step();
  bool evaluation_is_due() const;
  bool save_is_due() const;
  void evaluate(StepMetrics& metrics);
  void save();
  void finish();
  tensor::ExitCode stop(int signal);
  std::string how_it_ended() const;

  bool is_finished() const { return progress_.step >= config_.train.steps; }
  checkpoint::RunInfo run_info() const;

  StopRequest stop_request_;  // first: a signal during a long start is remembered too
  const Config& config_;
  tensor::Backend& backend_;
  std::FILE* console_;
  data::Dataset dataset_;
  Evaluator evaluator_;
  Learner learner_;
  LrSchedule lr_schedule_;
  checkpoint::Progress progress_;
  std::optional<checkpoint::Resumed> resumed_;
  std::vector<checkpoint::NamedTensor> state_;
  double flops_per_token_;
  double peak_flops_;

  // Exist from start() on.
  std::optional<Log> log_;
  std::optional<MetricsWriter> metrics_;
  std::optional<ProgressReport> report_;
  std::optional<data::Loader> loader_;
  Clock::time_point last_save_time_;
  int64_t last_saved_step_ = 0;
};

}  // namespace trainer
