#include "trainer/commands.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>

#include "checkpoint/file.h"
#include "data/tokenizer.h"
#include "parallel/schedule_drawing.h"
#include "trainer/config_reader.h"
#include "trainer/generate.h"
#include "trainer/plan.h"
#include "trainer/progress_format.h"
#include "trainer/saved_state.h"
#include "trainer/session.h"
#include "trainer/training_run.h"
#include "trainer/verify.h"

namespace trainer {

using tensor::ExitCode;

namespace {

/// A run that trained nothing has nothing to show.
checkpoint::Resumed load_trained(const Config& config, Learner& learner) {
  std::optional<checkpoint::Resumed> resumed = SavedState(config, learner).load();
  if (!resumed) {
    throw tensor::CheckpointError(
        fmt::format("There is no checkpoint in {}.\n  Fix: train first (trainer CONFIG), or name one by "
                    "--set checkpoint.resume=PATH.",
                    config.checkpoint.dir));
  }
  for (const std::string& warning : resumed->warnings) fmt::print(stderr, "warning: {}\n", warning);
  return std::move(*resumed);
}

void write_picture(const std::string& path, const std::string& svg) {
  std::ofstream file(path, std::ios::trunc);
  file << svg;
  file.close();
  if (file) return;
  throw tensor::StorageError(
      fmt::format("{}: the picture of the schedule cannot be written: {}.\n"
                  "  Fix: give --svg the path of a file in a folder that is there and may be written to.",
                  path, checkpoint::errno_text(errno)));
}

/// Of the terminal; of a file, as much as a wide one has.
int columns_of(std::FILE* stream) {
  constexpr int kWide = 160;
  winsize size{};
  const bool is_known = ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : kWide;
}

/// A live line on a terminal; silent elsewhere.
class BuildReport {
 public:
  void show(const data::BuildProgress& progress) {
    const double share = progress.total_bytes ? 100.0 * static_cast<double>(progress.bytes_read) /
                                                    static_cast<double>(progress.total_bytes)
                                              : 100.0;
    log_.show_live(fmt::format("{:3.0f} %  {} documents, {} tokens", share,
                               format_count(static_cast<double>(progress.num_documents)),
                               format_count(static_cast<double>(progress.num_tokens))));
  }
  void finish() { log_.show_live(""); }

 private:
  Log log_{LogOptions{.file = {}, .console = stderr, .speaker = {}}};
};

}  // namespace

ExitCode run(const TrainCommand& command, const parallel::MpiEnvironment& mpi) {
  Session session(command.run, mpi);
  TrainingRun training(
      {.config = session.config, .backend = session.backend, .context = session.context, .node = mpi.host()});
  return training.run();
}

ExitCode run(const EvalCommand& command, const parallel::MpiEnvironment& mpi) {
  Session session(command.run, mpi);
  const Config& config = session.config;
  const Evaluator evaluator(config, data::Dataset::open_valid(config.data, dataset_options(config)));
  if (evaluator.num_samples() == 0) {
    throw tensor::DataError(
        "The config keeps no data for evaluation.\n  Fix: name files in data.valid, or set data.valid_fraction.");
  }
  Learner learner(config, session.backend, session.context);
  const checkpoint::Resumed resumed = load_trained(config, learner);
  const LossSum loss = evaluator.run(learner);
  if (!session.context.is_root()) return ExitCode::finished;
  fmt::print("step {}, {} tokens of {} samples\n", resumed.info.progress.step, loss.num_targets,
             evaluator.num_samples());
  for (const auto& [name, value] : evaluator.metrics(loss)) fmt::print("{} {}\n", name, value);  // as in metrics.jsonl
  return ExitCode::finished;
}

ExitCode run(const SampleCommand& command, const parallel::MpiEnvironment& mpi) {
  Session session(command.run, mpi);
  const Config& config = session.config;
  if (config.data.tokenizer.empty()) {
    throw tensor::ConfigError(
        "data.tokenizer is not set, so text cannot become tokens.\n  Fix: set it to \"bytes\" or the path of the "
        "tokenizer.json that the data was built with.");
  }
  const auto tokenizer = data::load_tokenizer(config.data.tokenizer);
  const std::vector<int32_t> prompt = tokenizer->encode(command.prompt);
  if (prompt.empty())
    throw tensor::ConfigError("--prompt is empty.\n  Fix: give at least one character to go on from.");
  if (tokenizer->vocab_size() > config.model.vocab_size) {
    throw tensor::ConfigError(
        fmt::format("data.tokenizer = \"{}\" has {} tokens, but model.vocab_size = {}.\n  Fix: use the tokenizer that "
                    "the model was "
                    "trained with.",
                    config.data.tokenizer, tokenizer->vocab_size(), config.model.vocab_size));
  }
  Learner learner(config, session.backend, session.context);
  load_trained(config, learner);

  const bool speaks = session.context.is_root();
  if (speaks) fmt::print("{}", command.prompt);
  Generator generator(config.model, learner.pipeline(), learner.ops(), config.precision.compute);
  generator.run(prompt, command.num_tokens, command.sampling, [&](int32_t id) {
    if (speaks && id < tokenizer->vocab_size()) fmt::print("{}", tokenizer->decode(std::span(&id, 1)));
    std::fflush(stdout);
  });
  if (speaks) fmt::print("\n");
  return ExitCode::finished;
}

ExitCode run(const VerifyCommand& command, const parallel::MpiEnvironment& mpi) {
  Session session(command.run, mpi);
  session.config.precision.compute = command.dtype;
  std::optional<data::Dataset> dataset;
  if (command.uses_data) {
    dataset.emplace(data::Dataset::open_train(session.config.data, dataset_options(session.config)));
  }
  const auto source = dataset ? make_data_source(session.config, *dataset) : make_synthetic_source(session.config);
  VerifyOptions options = default_verify_options(command.dtype);
  options.steps = command.steps;
  if (command.tolerance > 0) options.scalar_tolerance = options.tensor_tolerance = command.tolerance;

  const auto differences = verify(session.config, session.backend, session.context, *source, options);
  const bool passes = std::all_of(differences.begin(), differences.end(), [](const auto& d) { return d.passes(); });
  if (session.context.is_root()) {
    fmt::print("{} ranks against one, {} steps in {}\n{}", session.context.mesh().world_size(), options.steps,
               to_string(command.dtype), format(differences));
  }
  return passes ? ExitCode::finished : ExitCode::numerics;
}

ExitCode run(const PlanCommand& command) {
  const Config config = load_config(command.run.config, command.run.overrides);
  const int64_t world_size = command.world_size > 0 ? command.world_size : default_world_size(config.parallel);
  const Plan plan = make_plan(config, static_cast<int>(world_size), static_cast<int>(command.rank));
  if (command.shows_schedule || !command.svg_path.empty()) {
    const PipelinePlan::Training passes = PipelinePlan(config, plan.degrees).passes(plan.split.num_microbatches);
    if (!command.svg_path.empty()) write_picture(command.svg_path, draw_svg(passes.schedule, passes.prediction));
    if (command.shows_schedule) {
      fmt::print("{}", draw_timeline(passes.schedule, passes.prediction, columns_of(stdout)));
      return ExitCode::finished;
    }
  }
  fmt::print("{}", command.is_json ? to_json(plan) : to_text(plan));
  return ExitCode::finished;
}

ExitCode run(const DataBuildCommand& command) {
  BuildReport report;
  data::BuildOptions options = command.options;
  options.progress = [&](const data::BuildProgress& progress) { report.show(progress); };
  const data::BuildResult result = data::build(options);
  report.finish();
  for (const std::string& path : result.written) fmt::print("wrote {}\n", path);
  fmt::print("{} documents, {} tokens, vocabulary of {}\n", result.num_documents, result.num_tokens, result.vocab_size);
  if (result.num_valid_documents > 0) {
    fmt::print("of these {} documents, {} tokens for validation\n", result.num_valid_documents,
               result.num_valid_tokens);
  }
  if (result.num_empty_documents > 0) fmt::print("{} empty documents left out\n", result.num_empty_documents);
  if (result.num_repaired_documents > 0) {
    fmt::print("{} documents held bytes that are not UTF-8; these became U+FFFD\n", result.num_repaired_documents);
  }
  return ExitCode::finished;
}

ExitCode run(const DataInspectCommand& command) {
  const auto tokenizer = command.tokenizer.empty() ? nullptr : data::load_tokenizer(command.tokenizer);
  data::TokenFileOptions options;
  options.vocab_size = command.vocab_size;
  for (const std::string& path : command.paths) {
    fmt::print("{}\n", data::to_text(data::inspect(path, options, tokenizer.get())));
  }
  return ExitCode::finished;
}

ExitCode run(const ShowText& command) {
  fmt::print("{}", command.text);
  return ExitCode::finished;
}

}  // namespace trainer
