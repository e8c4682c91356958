#pragma once
/// The command line: what `trainer ...` was asked to do. Nothing is opened or read here but the arguments.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "data/build.h"
#include "tensor/dtype.h"
#include "trainer/checkpoint_cli.h"
#include "trainer/sampling.h"

namespace trainer {

enum class DeviceChoice { automatic, cpu, cuda };

/// What the commands that take a CONFIG have in common.
struct RunOptions {
  std::string config;                  ///< path of the TOML file
  std::vector<std::string> overrides;  ///< --set, as load_config() takes them
  DeviceChoice device = DeviceChoice::automatic;
  int64_t num_threads = 0;  ///< 0: the cores this process may use
};

struct TrainCommand {
  RunOptions run;
};

struct EvalCommand {
  RunOptions run;
};

struct SampleCommand {
  RunOptions run;
  std::string prompt;
  int64_t num_tokens = 200;
  SamplingOptions sampling;
};

struct VerifyCommand {
  RunOptions run;
  int64_t steps = 3;
  double tolerance = 0;  ///< of every relative difference; 0: those of the dtype
  tensor::Dtype dtype = tensor::Dtype::fp64;
  bool uses_data = false;  ///< the config's own data, else synthetic tokens
};

struct PlanCommand {
  RunOptions run;          ///< its device and threads are not used
  int64_t world_size = 0;  ///< ranks; 0: as many as the config's degrees ask for
  int64_t rank = 0;        ///< whose part is shown
  bool is_json = false;
  bool shows_schedule = false;  ///< the timeline of the pipeline, in place of the tables
  std::string svg_path;         ///< where to write it as a picture; empty: nowhere
};

struct DataBuildCommand {
  data::BuildOptions options;
};

struct DataInspectCommand {
  std::vector<std::string> paths;
  std::string tokenizer;   ///< to show the first tokens as text; empty: do not
  int64_t vocab_size = 0;  ///< ids must be below; 0: not checked
};

/// --help or --version: print, and exit with 0.
struct ShowText {
  std::string text;
};

using Command = std::variant<TrainCommand, EvalCommand, SampleCommand, VerifyCommand, PlanCommand, DataBuildCommand,
                             DataInspectCommand, CheckpointCommand, ShowText>;

/// `arguments` without the program's name. Throws ConfigError for wrong usage, naming the nearest word that is known.
Command parse_command_line(std::vector<std::string> arguments);

}  // namespace trainer
