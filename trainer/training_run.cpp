#include "trainer/training_run.h"

#include <cstring>

#include "checkpoint/directory.h"
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

TrainingRun::TrainingRun(const Workbench& bench)
    : config_(bench.config),
      backend_(bench.backend),
      context_(bench.context),
      console_(bench.console),
      node_(bench.node),
      dataset_(data::Dataset::open_train(config_.data, dataset_options(config_))),
      evaluator_(config_, data::Dataset::open_valid(config_.data, dataset_options(config_))),
      learner_(config_, backend_, context_),
      lr_schedule_(config_.lr_schedule, {.peak_lr = config_.optimizer.lr, .steps = config_.train.steps}),
      saved_state_(config_, learner_),
      flops_per_token_(model::flops_per_token(config_.model).causal),
      peak_flops_(config_.cluster.peak_tflops > 0 ? config_.cluster.peak_tflops * 1e12
                                                  : backend_.device->peak_flops(config_.precision.compute)) {
  progress_.seed = static_cast<uint64_t>(config_.run.seed);
  learner_.check_parameter_count();
  refuse_to_mix_runs(config_);
  // before another run under way there deletes what is loaded
  if (context_.is_root()) lock_.hold_existing(lock_files(config_));
  const Clock::time_point begin = Clock::now();
  resumed_ = saved_state_.load();
  load_time_ = Clock::now() - begin;
  if (resumed_) {
    check_seed(config_, *resumed_);
    progress_ = resumed_->info.progress;
  }
  last_saved_step_ = progress_.step;
  // Token ids are checked as they are read: those of the first step before anything is written.
  data::read_batch(dataset_, progress_.samples, config_.train.global_batch_size);
}

ExitCode TrainingRun::run() {
  if (is_finished()) {
    Log(log_options({})).info(how_it_ended());
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
    if (metrics_) metrics_->write(metrics);
    report_->show(metrics);
    advance_save();
    if (save_is_due()) save();
    if (agreed_.signal != 0 && !is_finished()) return stop();
  }
  finish_save();
  finish();
  return ExitCode::finished;
}

void TrainingRun::start() {
  const RunFolder folder{config_.run.dir};
  std::optional<Plan> plan;
  if (context_.is_root()) {
    plan = make_plan(config_, context_.mesh().world_size());
    create_run_folder(config_);
    lock_.hold(lock_files(config_));
    remove_leftovers(config_);
  }
  saved_state_.require_free_space();
  if (context_.is_root()) {
    write_run_files(config_, *plan);
    metrics_.emplace(folder.metrics_file(), progress_.step);
  }
  log_.emplace(log_options(context_.is_root() ? folder.log_file() : ""));
  report_.emplace(*log_, ProgressReport::Options{.steps = config_.train.steps, .every_steps = config_.log.every_steps});
  if (config_.log.trace) trace_.emplace(folder.trace_dir(), context_);
  if (plan) say_how_it_starts(*plan);
  context_.ledger().end_step();
  const int64_t part = config_.train.global_batch_size / context_.num_data_ranks();
  loader_.emplace(dataset_, data::LoaderOptions{.first_sample = progress_.samples,
                                                .global_batch_size = config_.train.global_batch_size,
                                                .slice_begin = part * context_.data_rank(),
                                                .slice_end = part * (context_.data_rank() + 1),
                                                .num_batches = config_.train.steps - progress_.step,
                                                .prefetch_batches = config_.data.prefetch_batches});
  last_save_time_ = Clock::now();
}

LogOptions TrainingRun::log_options(const std::string& file) const {
  return {.file = file,
          .console = console_,
          .speaker = {.rank = context_.rank(), .world_size = context_.mesh().world_size(), .node = node_}};
}

void TrainingRun::say_how_it_starts(const Plan& plan) {
  log_->info(fmt::format("trainer {} on {}", build_id(), backend_.device->describe()));
  log_->info(fmt::format("model: {} weights; data: {} training samples, {} for evaluation",
                         format_count(static_cast<double>(model::parameter_count(config_.model))),
                         dataset_.num_samples(), evaluator_.num_samples()));
  log_->info(fmt::format("plan {}: {}", plan_hash(plan), layout_in_words(plan)));
  if (!resumed_) return;
  for (const std::string& warning : resumed_->warnings) log_->warn(warning);
  log_->info(fmt::format("resumed from {} at step {}, loaded in {:.3f} s", resumed_->path, progress_.step,
                         load_time_.count()));
  for (const std::string& change : config_changes(resumed_->info.config_text, to_toml(config_))) {
    log_->info(fmt::format("changed since then: {}", change));
  }
}

StepMetrics TrainingRun::train_step() {
  const Clock::time_point begin = Clock::now();
  const int64_t step = progress_.step + 1;
  log_->set_step(step);
  context_.ledger().end_step();  // what evaluation and saving moved is no step's
  const double lr = lr_schedule_.at(step);
  const data::Batch batch = loader_->next();
  checkpoint::ShardedSave& saving = saved_state_.saving();
  const StepResult result = learner_.train({.step = step, .lr = lr}, batch, [&] {
    const Clock::time_point pause = Clock::now();
    saving.before_update();
    save_stall_ += Clock::now() - pause;
  });
  progress_.step = step;
  agreed_ = agree({.save_is_due = is_time_to_save(), .signal = stop_request_.signal(), .is_saving = saving.is_busy()},
                  context_.world(), *backend_.device);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::optional<Bubble> bubble;
  if (trace_) bubble = learner_.measure_bubble();

  const int64_t tokens = config_.train.global_batch_size * batch.seq_len;
  progress_.samples += config_.train.global_batch_size;
  progress_.tokens += tokens;
  const double tokens_per_second = static_cast<double>(tokens) / seconds;
  StepMetrics metrics = {.step = step,
                         .samples = progress_.samples,
                         .tokens = progress_.tokens,
                         .loss = result.loss.mean(),
                         .grad_norm = result.grad_norm,
                         .lr = lr,
                         .tokens_per_second = tokens_per_second,
                         .step_ms = seconds * 1e3,
                         .mfu = flops_per_token_ * tokens_per_second / (peak_flops_ * context_.mesh().world_size()),
                         .memory_bytes = backend_.device->pool().total().peak_bytes,
                         .extra = rank_metrics()};
  if (trace_) add_bubble(*bubble, metrics);
  if (result.routing) add_routing(*result.routing, metrics);
  return metrics;
}

void TrainingRun::add_routing(const model::RoutingStatistics::Summary& routing, StepMetrics& metrics) {
  metrics.extra.insert(metrics.extra.end(), {{"moe/tokens_per_expert_min", routing.tokens_min},
                                             {"moe/tokens_per_expert_max", routing.tokens_max},
                                             {"moe/tokens_per_expert_mean", routing.tokens_mean},
                                             {"moe/entropy", routing.entropy},
                                             {"moe/dropped_fraction", routing.dropped_fraction},
                                             {"moe/aux_loss", routing.aux_loss},
                                             {"moe/z_loss", routing.z_loss},
                                             {"moe/router_bias_min", routing.bias_min},
                                             {"moe/router_bias_max", routing.bias_max}});
}

/// Beside what the simulator says of the same schedule, weighed by FLOPs.
void TrainingRun::add_bubble(const Bubble& measured, StepMetrics& metrics) {
  const int64_t num_microbatches = split_batch(config_, context_.num_data_ranks()).num_microbatches;
  const parallel::Simulation& predicted = context_.pipeline().training(num_microbatches).prediction;
  metrics.extra.insert(metrics.extra.end(), {{"bubble/idle_over_ideal", measured.idle_over_ideal},
                                             {"bubble/idle_over_total", measured.idle_over_total},
                                             {"bubble/predicted_idle_over_ideal", predicted.idle_over_ideal()},
                                             {"bubble/predicted_idle_over_total", predicted.idle_over_total()}});
  trace_->write_step(metrics.step);
}

/// Of rank 0: what its model state takes, and what it sent this step.
std::vector<std::pair<std::string, double>> TrainingRun::rank_metrics() {
  std::vector<std::pair<std::string, double>> metrics;
  for (const auto category :
       {tensor::MemoryCategory::parameters, tensor::MemoryCategory::gradients, tensor::MemoryCategory::optimizer}) {
    const int64_t bytes = backend_.device->pool().use(category).peak_bytes;
    metrics.emplace_back(to_string(category) + "_bytes", static_cast<double>(bytes));
  }
  metrics.emplace_back("save_stall_ms", 1e3 * std::exchange(save_stall_, {}).count());
  for (const auto& [key, line] : context_.ledger().end_step()) {
    metrics.emplace_back(fmt::format("bytes/{}/{}/{}", key.axis, to_string(key.op), to_string(key.dtype)),
                         static_cast<double>(line.bytes));
  }
  return metrics;
}

bool TrainingRun::evaluation_is_due() const {
  const int64_t every = config_.train.eval_every;
  return every > 0 && (progress_.step % every == 0 || is_finished());
}

void TrainingRun::evaluate(StepMetrics& metrics) {
  const LossSum loss = evaluator_.run(learner_);
  if (trace_) trace_->write_step(metrics.step);
  const auto results = evaluator_.metrics(loss);
  metrics.extra.insert(metrics.extra.end(), results.begin(), results.end());
  log_->info(fmt::format("step {}: {}", metrics.step, evaluator_.describe(loss)));
}

bool TrainingRun::save_is_due() const {
  const int64_t every = config_.checkpoint.every_steps;
  return is_finished() || (every > 0 && progress_.step % every == 0) || agreed_.save_is_due;
}

bool TrainingRun::is_time_to_save() const {
  const std::chrono::duration<double> since_save = Clock::now() - last_save_time_;
  const double every_minutes = config_.checkpoint.every_minutes;
  return every_minutes > 0 && since_save.count() >= 60 * every_minutes;
}

void TrainingRun::save() {
  if (last_saved_step_ == progress_.step) return;
  finish_save();  // of the checkpoint before
  save_begin_ = Clock::now();
  if (metrics_) metrics_->sync();
  save_stall_ += Clock::now() - save_begin_;
  guard_save([&] { saved_state_.start_save(run_info()); });
  if (!config_.checkpoint.async) finish_save();
  last_saved_step_ = progress_.step;
  last_save_time_ = Clock::now();
}

/// What is written in the background goes on to its next stage when all ranks are through with the one before.
void TrainingRun::advance_save() {
  checkpoint::ShardedSave& saving = saved_state_.saving();
  if (!saving.is_under_way() || agreed_.is_saving) return;
  guard_save([&] {
    if (saving.advance()) say_saved();
  });
}

void TrainingRun::finish_save() {
  checkpoint::ShardedSave& saving = saved_state_.saving();
  if (!saving.is_under_way()) return;
  guard_save([&] {
    saving.finish();
    say_saved();
  });
}

void TrainingRun::say_saved() {
  num_failed_saves_ = 0;
  if (!context_.is_root()) return;
  const checkpoint::ShardedSave& saving = saved_state_.saving();
  const std::chrono::duration<double> seconds = saving.time_of_publication() - save_begin_;
  log_->to_file(fmt::format("saved {} in {:.3f} s", saving.path(), seconds.count()));
  if (!saving.warning().empty()) log_->warn(saving.warning());
}

/// Training goes on after a save that failed, on all ranks alike; not after too many, nor without the last one.
void TrainingRun::guard_save(const std::function<void()>& action) {
  const Clock::time_point begin = Clock::now();
  try {
    action();
    save_stall_ += Clock::now() - begin;
  } catch (const tensor::StorageError& error) {
    ++num_failed_saves_;
    const bool is_last = is_finished() || agreed_.signal != 0;
    if (is_last || num_failed_saves_ > config_.checkpoint.max_failed_saves) throw;
    if (context_.is_root()) {
      log_->warn(fmt::format("{}\n  Save {} of at most {} that may fail in a row; training goes on.", error.what(),
                             num_failed_saves_, config_.checkpoint.max_failed_saves));
    }
  }
}

void TrainingRun::finish() {
  if (trace_) trace_->join();
  report_->finish();
  const parallel::Bill bill = context_.ledger().run();
  if (!bill.empty()) log_->info(fmt::format("what rank 0 moved:\n{}", format_bill(bill)));
  log_->info(how_it_ended());
}

std::string TrainingRun::how_it_ended() const {
  return fmt::format("finished step {} of {}; the run is in {}", progress_.step, config_.train.steps, config_.run.dir);
}

ExitCode TrainingRun::stop() {
  save();
  finish_save();
  if (trace_) trace_->join();
  if (context_.is_root()) {
    log_->warn(fmt::format("{} received: saved step {} of {}. Run the same command again{} to go on.",
                           strsignal(agreed_.signal), progress_.step, config_.train.steps,
                           config_.checkpoint.resume == "auto" ? "" : " with --set checkpoint.resume=auto"));
  }
  return ExitCode::run_again;
}

checkpoint::RunInfo TrainingRun::run_info() const {
  return {.progress = progress_, .config_text = to_toml(config_), .build_id = build_id()};
}

}  // namespace trainer
