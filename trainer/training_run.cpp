#include "trainer/training_run.h"

#include <cstring>

#include "checkpoint/single_file.h"
#include "model/flops.h"
#include "trainer/build_id.h"
#include "trainer/config_changes.h"
#include "trainer/config_reader.h"
#include "trainer/run_folder.h"

namespace trainer {

using tensor::ExitCode;

namespace {

/// A new run in a folder that holds checkpoints of an older one would mix the two.
void refuse_to_mix_runs(const Config& config) {
  const auto latest = checkpoint::latest_checkpoint(config.checkpoint.dir);
  if (config.checkpoint.resume != "none" || !latest) return;
  throw tensor::ConfigError(fmt::format(
      "checkpoint.resume = \"none\" starts a new run, but {} holds checkpoints of an earlier one, up to step {}.\n"
      "  Fix: choose another run.dir, move that folder away, or set checkpoint.resume = \"auto\" to go on with it.",
      config.checkpoint.dir, latest->step));
}

void check_seed(const Config& config, const checkpoint::Resumed& resumed) {
  const uint64_t seed = resumed.info.progress.seed;
  if (seed == static_cast<uint64_t>(config.run.seed)) return;
  throw tensor::ConfigError(fmt::format(
      "run.seed = {}, but {} was trained with seed {}: data order and dropout would change in the middle of a run.\n"
      "  Fix: set run.seed = {}, or start a new run in another run.dir.",
      config.run.seed, resumed.path, seed, seed));
}

}  // namespace

data::DatasetOptions dataset_options(const Config& config) {
  return {.seq_len = config.model.seq_len,
          .vocab_size = config.model.vocab_size,
          .seed = static_cast<uint64_t>(config.run.seed)};
}

std::optional<checkpoint::Resumed> load_checkpoint(const Config& config, Learner& learner,
                                                   std::vector<checkpoint::NamedTensor>& state) {
  const std::string& from = config.checkpoint.resume;
  const bool is_path = from != "auto" && from != "none";
  std::optional<checkpoint::Resumed> resumed =
      is_path ? checkpoint::Resumed{.info = checkpoint::load(from, state), .path = from, .warnings = {}}
              : checkpoint::resume_newest(config.checkpoint.dir, state);
  if (resumed) learner.loaded();
  return resumed;
}

TrainingRun::TrainingRun(const Workbench& bench)
    : config_(bench.config),
      backend_(bench.backend),
      console_(bench.console),
      dataset_(data::Dataset::open_train(config_.data, dataset_options(config_))),
      evaluator_(config_, data::Dataset::open_valid(config_.data, dataset_options(config_))),
      learner_(config_, backend_),
      lr_schedule_(config_.lr_schedule, {.peak_lr = config_.optimizer.lr, .steps = config_.train.steps}),
      state_(learner_.state()),
      flops_per_token_(model::flops_per_token(config_.model).causal),
      peak_flops_(config_.cluster.peak_tflops > 0 ? config_.cluster.peak_tflops * 1e12
                                                  : backend_.device->peak_flops(config_.precision.compute)) {
  progress_.seed = static_cast<uint64_t>(config_.run.seed);
  refuse_to_mix_runs(config_);
  resumed_ = load_checkpoint(config_, learner_, state_);
  if (resumed_) {
    check_seed(config_, *resumed_);
    progress_ = resumed_->info.progress;
  }
  last_saved_step_ = progress_.step;
  // token ids are checked as they are read: those of the first step before anything is written
  data::read_batch(dataset_, progress_.samples, config_.train.global_batch_size);
}

ExitCode TrainingRun::run() {
  if (is_finished()) {
    Log({.file = {}, .console = console_}).info(how_it_ended());
    return ExitCode::finished;
  }
  start();
  try {
    return train_steps();
  } catch (const tensor::Error& error) {
    log_->show_live("");
    log_->to_file(error.what());  // on the console, main() says it
    throw;
  }
}

ExitCode TrainingRun::train_steps() {
  while (!is_finished()) {
    StepMetrics metrics = train_step();
    if (evaluation_is_due()) evaluate(metrics);
    metrics_->write(metrics);
    report_->show(metrics);
    if (save_is_due()) save();
    if (const int signal = stop_request_.signal(); signal != 0 && !is_finished()) return stop(signal);
  }
  finish();
  return ExitCode::finished;
}

void TrainingRun::start() {
  const RunFolder folder = prepare_run_folder(config_);
  checkpoint::remove_temporary_files(config_.checkpoint.dir);
  log_.emplace(LogOptions{.file = folder.log_file(), .console = console_});
  metrics_.emplace(folder.metrics_file(), progress_.step);
  report_.emplace(*log_, ProgressReport::Options{.steps = config_.train.steps, .every_steps = config_.log.every_steps});
  say_how_it_starts();
  checkpoint::require_free_space(config_.checkpoint.dir, checkpoint::file_bytes(run_info(), state_));
  loader_.emplace(dataset_, data::LoaderOptions{.first_sample = progress_.samples,
                                                .global_batch_size = config_.train.global_batch_size,
                                                .slice_begin = 0,
                                                .slice_end = config_.train.global_batch_size,
                                                .num_batches = config_.train.steps - progress_.step,
                                                .prefetch_batches = config_.data.prefetch_batches});
  last_save_time_ = Clock::now();
}

void TrainingRun::say_how_it_starts() {
  log_->info(fmt::format("trainer {} on {}", build_id(), backend_.device->describe()));
  log_->info(fmt::format("model: {} weights; data: {} training samples, {} for evaluation",
                         format_count(static_cast<double>(learner_.parameters().numel())), dataset_.num_samples(),
                         evaluator_.num_samples()));
  if (!resumed_) return;
  for (const std::string& warning : resumed_->warnings) log_->warn(warning);
  log_->info(fmt::format("resumed from {} at step {}", resumed_->path, progress_.step));
  for (const std::string& change : config_changes(resumed_->info.config_text, to_toml(config_))) {
    log_->info(fmt::format("changed since then: {}", change));
  }
}

StepMetrics TrainingRun::train_step() {
  const Clock::time_point begin = Clock::now();
  const int64_t step = progress_.step + 1;
  log_->set_step(step);
  const double lr = lr_schedule_.at(step);
  const data::Batch batch = loader_->next();
  const StepResult result = learner_.train({.step = step, .lr = lr}, batch);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();

  const int64_t tokens = batch.num_sequences * batch.seq_len;
  progress_.step = step;
  progress_.samples += batch.num_sequences;
  progress_.tokens += tokens;
  const double tokens_per_second = static_cast<double>(tokens) / seconds;
  return {.step = step,
          .samples = progress_.samples,
          .tokens = progress_.tokens,
          .loss = result.loss.mean(),
          .grad_norm = result.grad_norm,
          .lr = lr,
          .tokens_per_second = tokens_per_second,
          .step_ms = seconds * 1e3,
          .mfu = flops_per_token_ * tokens_per_second / peak_flops_,
          .memory_bytes = backend_.device->pool().total().peak_bytes,
          .extra = {}};
}

bool TrainingRun::evaluation_is_due() const {
  const int64_t every = config_.train.eval_every;
  return every > 0 && (progress_.step % every == 0 || is_finished());
}

void TrainingRun::evaluate(StepMetrics& metrics) {
  const LossSum loss = evaluator_.run(learner_);
  metrics.extra = evaluator_.metrics(loss);
  log_->info(fmt::format("step {}: {}", metrics.step, evaluator_.describe(loss)));
}

bool TrainingRun::save_is_due() const {
  const auto& when = config_.checkpoint;
  if (is_finished()) return true;
  if (when.every_steps > 0 && progress_.step % when.every_steps == 0) return true;
  const std::chrono::duration<double> since_save = Clock::now() - last_save_time_;
  return when.every_minutes > 0 && since_save.count() >= 60 * when.every_minutes;
}

void TrainingRun::save() {
  if (last_saved_step_ == progress_.step) return;
  metrics_->sync();
  const std::string path =
      checkpoint::save_in(config_.checkpoint.dir, run_info(), state_, config_.checkpoint.keep_last);
  last_saved_step_ = progress_.step;
  last_save_time_ = Clock::now();
  log_->to_file(fmt::format("saved {}", path));
}

void TrainingRun::finish() {
  report_->finish();
  log_->info(how_it_ended());
}

std::string TrainingRun::how_it_ended() const {
  return fmt::format("finished step {} of {}; the run is in {}", progress_.step, config_.train.steps, config_.run.dir);
}

ExitCode TrainingRun::stop(int signal) {
  save();
  log_->warn(fmt::format("{} received: saved step {} of {}. Run the same command again{} to go on.", strsignal(signal),
                         progress_.step, config_.train.steps,
                         config_.checkpoint.resume == "auto" ? "" : " with --set checkpoint.resume=auto"));
  return ExitCode::run_again;
}

checkpoint::RunInfo TrainingRun::run_info() const {
  return {.progress = progress_, .config_text = to_toml(config_), .build_id = build_id()};
}

}  // namespace trainer
