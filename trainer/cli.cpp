#include "trainer/cli.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "tensor/error.h"
#include "trainer/build_id.h"
#include "trainer/nearest.h"
#include "trainer/printable.h"

namespace trainer {
namespace {

const std::vector<std::string> kCommands = {"train", "eval", "sample", "verify", "plan", "data", "checkpoint"};

constexpr const char* kExitCodes =
    "Exit codes: 0 finished; 2 usage or config; 3 layout or launch; 4 data; 5 checkpoint unusable; 6 storage;\n"
    "7 numerics; 8 a peer was lost; 70 internal error; 75 saved after a signal or time limit, run again.";

/// CLI::Range, without a repetition of type and ends in --help.
template <class T>
CLI::Validator in_range(T min, T max) {
  return CLI::Range(min, max).description("");
}

/// The parser and the commands it fills. One parse only.
class CommandLine {
 public:
  CommandLine() {
    app_.require_subcommand(1);
    app_.set_version_flag("--version", "trainer " + build_id());
    app_.footer(std::string("Examples:\n"
                            "  trainer configs/quickstart.toml\n"
                            "  trainer configs/quickstart.toml --set train.steps=100 --set optimizer.lr=1e-3\n"
                            "  trainer sample configs/quickstart.toml --prompt \"In the beginning \"\n"
                            "'trainer COMMAND --help' tells more.\n\n") +
                kExitCodes);
    add_train();
    add_eval();
    add_sample();
    add_verify();
    add_plan();
    add_data();
    checkpoint_.emplace(app_);
  }

  Command parse(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    try {
      app_.parse(arguments);
    } catch (const CLI::CallForHelp&) {
      return ShowText{app_.help()};
    } catch (const CLI::CallForAllHelp&) {
      return ShowText{app_.help("", CLI::AppFormatMode::All)};
    } catch (const CLI::CallForVersion&) {
      return ShowText{"trainer " + build_id() + "\n"};
    } catch (const CLI::ParseError& error) {
      refuse(error);
    }
    return chosen();
  }

 private:
  void add_config_options(CLI::App& command, RunOptions& run) {
    command.add_option("CONFIG", run.config, "The run config, a TOML file")->required();
    command.add_option("--set", run.overrides, "Override one key: table.key=value. May be repeated")
        ->type_name("KEY=VALUE")
        ->allow_extra_args(false);
  }

  void add_run_options(CLI::App& command, RunOptions& run) {
    add_config_options(command, run);
    command.add_option("--device", device_name_, "auto (a GPU if this build and machine have one), cpu or cuda")
        ->type_name("NAME")
        ->check(CLI::IsMember(std::vector<std::string>{"auto", "cpu", "cuda"}));
    command
        .add_option(
            "--threads", run.num_threads,
            "CPU threads of each rank; default: OMP_NUM_THREADS, else the cores of this node shared by its ranks")
        ->check(in_range(int64_t{1}, int64_t{4096}));
  }

  void add_train() {
    train_app_ = app_.add_subcommand("train", "Train the model of a config; go on from its newest checkpoint");
    add_run_options(*train_app_, train_.run);
    train_app_->footer(
        "Writes into the folder run.dir: config.toml, log.txt, metrics.jsonl and checkpoints/.\n"
        "Ctrl-C saves and stops; the same command goes on from there (checkpoint.resume).\n\n"
        "Example:\n"
        "  trainer train configs/quickstart.toml --set train.steps=100 --threads 2\n"
        "The word train may be left out.");
  }

  void add_eval() {
    eval_app_ = app_.add_subcommand("eval", "Print loss and perplexity on the validation data of a config");
    add_run_options(*eval_app_, eval_.run);
    eval_app_->footer(
        "Evaluates the newest checkpoint of the run, or the one that checkpoint.resume names, on data.valid or on\n"
        "the part of data.train that data.valid_fraction keeps back.\n\n"
        "Example:\n"
        "  trainer eval configs/quickstart.toml --set data.valid=other_text");
  }

  void add_verify() {
    verify_app_ = app_.add_subcommand("verify", "Prove that the launched layout computes what one rank computes");
    add_run_options(*verify_app_, verify_.run);
    verify_app_->add_option("--steps", verify_.steps, "Optimizer steps to compare; default: 3")
        ->check(in_range(int64_t{1}, int64_t{1'000'000}));
    verify_app_->add_option("--tolerance", verify_.tolerance,
                            "Largest relative difference; default: 1e-10 for loss and gradient norm and 1e-9 for\n"
                            "gradients and weights in fp64, 1e-5 in fp32");
    verify_app_->add_option("--dtype", dtype_name_, "What both runs compute in: fp64 (default) or fp32")
        ->type_name("NAME")
        ->check(CLI::IsMember(std::vector<std::string>{"fp64", "fp32"}));
    verify_app_->add_flag("--data,!--synthetic", verify_.uses_data,
                          "Train on the config's own data; default: --synthetic, random tokens");
    verify_app_->footer(
        "Trains the config on the ranks of the launch and once more on one rank, and compares losses, gradient\n"
        "norms, every gradient of the first step and every weight after the last, by name. Exits with 7 where they\n"
        "differ. Writes nothing.\n\n"
        "Examples:\n"
        "  trainer verify configs/quickstart.toml --set parallel.zero_stage=3\n"
        "  mpirun -np 4 trainer verify configs/quickstart.toml --set parallel.tp=2 --set parallel.zero_stage=3");
  }

  void add_plan() {
    plan_app_ = app_.add_subcommand("plan", "Show what a run would do: groups, memory, and every byte sent in a step");
    add_config_options(*plan_app_, plan_.run);
    plan_app_
        ->add_option("--world", plan_.world_size, "Ranks to plan for; default: those of [parallel], dp = 1 if auto")
        ->check(in_range(int64_t{1}, int64_t{1} << 20));
    plan_app_->add_option("--rank", plan_.rank, "Whose part to show; default: 0")
        ->check(in_range(int64_t{0}, int64_t{1} << 20));
    auto* json =
        plan_app_->add_flag("--json", plan_.is_json, "For programs: one JSON object, as in plan.json of a run");
    plan_app_->add_flag("--schedule", plan_.shows_schedule, "Draw the timeline of the pipeline's passes")
        ->excludes(json);
    plan_app_->add_option("--svg", plan_.svg_path, "Write that timeline as a picture")->type_name("FILE");
    plan_app_->footer(
        "Needs no GPU, no other ranks and no data, and plans thousands of ranks in a second or two.\n\n"
        "Examples:\n"
        "  trainer plan configs/llama_1b.toml --world 64 --set parallel.tp=4 --set parallel.zero_stage=1\n"
        "  trainer plan configs/llama_1b.toml --schedule --svg zb.svg --set parallel.pp=4 \\\n"
        "      --set parallel.schedule=zb_h1 --set train.micro_batch_size=1");
  }

  void add_sample() {
    sample_app_ = app_.add_subcommand("sample", "Write on from a prompt with the trained model of a config");
    add_run_options(*sample_app_, sample_.run);
    sample_app_->add_option("--prompt", sample_.prompt, "Text to go on from")->required()->type_name("TEXT");
    sample_app_->add_option("--tokens", sample_.num_tokens, "How many tokens to write")
        ->capture_default_str()
        ->check(in_range(int64_t{1}, int64_t{1} << 40));
    SamplingOptions& sampling = sample_.sampling;
    sample_app_->add_option("--temperature", sampling.temperature, "Below 1: safer, above: wilder; 0: likeliest")
        ->capture_default_str()
        ->check(in_range(0.0, 1000.0));
    sample_app_->add_option("--top-k", sampling.top_k, "Choose among the k likeliest tokens; 0: among all")
        ->capture_default_str()
        ->check(in_range(int64_t{0}, int64_t{1} << 31));
    sample_app_->add_option("--top-p", sampling.top_p, "Choose among the likeliest tokens of this total probability")
        ->capture_default_str()
        ->check(in_range(0.0, 1.0));
    sample_app_->add_option("--seed", seed_, "The same seed writes the same text")
        ->capture_default_str()
        ->check(in_range(int64_t{0}, std::numeric_limits<int64_t>::max()));
    sample_app_->footer(
        "Text becomes tokens by the config's data.tokenizer.\n\n"
        "Example:\n"
        "  trainer sample configs/quickstart.toml --prompt \"And it came to pass\" --temperature 0.7 --tokens 400");
  }

  void add_data() {
    data_app_ = app_.add_subcommand("data", "Make token files from text (build), look into them (inspect)");
    data_app_->require_subcommand(1);
    data_app_->footer(
        "Examples:\n"
        "  trainer data build corpus.txt --output corpus --tokenizer bytes --documents lines\n"
        "  trainer data inspect corpus");
    add_data_build();
    add_data_inspect();
  }

  void add_data_build() {
    build_app_ = data_app_->add_subcommand("build", "Turn text files into a token file, PREFIX.bin and PREFIX.idx");
    data::BuildOptions& build = build_.options;
    build_app_->add_option("INPUT", build.inputs, "Text files")->required();
    build_app_->add_option("-o,--output", build.output_prefix, "Where to write, without .bin")
        ->required()
        ->type_name("PREFIX");
    build_app_->add_option("--tokenizer", build.tokenizer, "bytes, or the path of a tokenizer.json")
        ->capture_default_str()
        ->type_name("NAME");
    build_app_->add_option("--documents", documents_name_, "A document is: files (a whole file), lines, jsonl")
        ->capture_default_str()
        ->type_name("KIND")
        ->check(CLI::IsMember(std::vector<std::string>{"files", "lines", "jsonl"}));
    build_app_->add_option("--json-key", build.json_key, "jsonl: the key of the text")
        ->capture_default_str()
        ->type_name("KEY");
    build_app_->add_flag("--append-eod", build.append_eod, "End each document with the end-of-document token");
    build_app_->add_option("--eod-token", build.eod_token, "That token, where the tokenizer does not make it clear")
        ->type_name("TEXT");
    build_app_
        ->add_option("--valid-fraction", build.valid_fraction, "Write this share of the documents to PREFIX_valid")
        ->check(in_range(0.0, 1.0));
    build_app_->add_flag("--overwrite", build.overwrite, "Replace existing output");
    build_app_->footer(
        "Examples:\n"
        "  trainer data build verses.txt --output data/verses --tokenizer bytes --documents lines\n"
        "  trainer data build *.jsonl --output web --tokenizer gpt2/tokenizer.json --documents jsonl \\\n"
        "      --append-eod --valid-fraction 0.01");
  }

  void add_data_inspect() {
    inspect_app_ = data_app_->add_subcommand("inspect", "Check a token file and print what is in it");
    inspect_app_->add_option("FILE", inspect_.paths, "Token files: Megatron .bin/.idx, llm.c or nanoGPT .bin")
        ->required();
    inspect_app_
        ->add_option("--tokenizer", inspect_.tokenizer, "Show the first tokens as text: bytes, or tokenizer.json")
        ->type_name("NAME");
    inspect_app_->add_option("--vocab-size", inspect_.vocab_size, "Refuse token ids of this size and above")
        ->check(in_range(int64_t{1}, int64_t{1} << 31));
    inspect_app_->footer("Example:\n  trainer data inspect data/verses --tokenizer bytes");
  }

  Command chosen() {
    static const std::map<std::string, DeviceChoice> devices = {
        {"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}};
    const DeviceChoice device = devices.at(device_name_);
    if (train_app_->parsed()) {
      train_.run.device = device;
      return train_;
    }
    if (eval_app_->parsed()) {
      eval_.run.device = device;
      return eval_;
    }
    if (verify_app_->parsed()) {
      verify_.run.device = device;
      verify_.dtype = dtype_name_ == "fp32" ? tensor::Dtype::fp32 : tensor::Dtype::fp64;
      refuse_nan(verify_.tolerance, "--tolerance");
      return verify_;
    }
    if (sample_app_->parsed()) {
      sample_.run.device = device;
      sample_.sampling.seed = static_cast<uint64_t>(seed_);
      refuse_nan(sample_.sampling.temperature, "--temperature");
      refuse_nan(sample_.sampling.top_p, "--top-p");
      return sample_;
    }
    if (plan_app_->parsed()) return plan_;
    if (checkpoint_->is_chosen()) return checkpoint_->chosen();
    if (inspect_app_->parsed()) return inspect_;
    static const std::map<std::string, data::DocumentSplit> splits = {{"files", data::DocumentSplit::files},
                                                                      {"lines", data::DocumentSplit::lines},
                                                                      {"jsonl", data::DocumentSplit::jsonl}};
    build_.options.documents = splits.at(documents_name_);
    refuse_nan(build_.options.valid_fraction, "--valid-fraction");
    return build_;
  }

  static void refuse_nan(double value, const std::string& option) {  // the range check lets it pass
    if (std::isfinite(value)) return;
    throw tensor::ConfigError(
        fmt::format("command line: {} = {} is not a number.\n  Fix: give a finite number.", option, value));
  }

  [[noreturn]] void refuse(const CLI::ParseError& error) {
    const CLI::App* command = &app_;
    std::string name = "trainer";
    while (!command->get_subcommands().empty()) {
      command = command->get_subcommands().front();
      name += " " + command->get_name();
    }
    std::string fix = fmt::format("'{} --help' lists what it takes.", name);
    for (const std::string& word : app_.remaining(true)) {
      const std::string meant = nearest(word.substr(0, word.find('=')), words_of(*command));
      if (meant.empty()) continue;
      fix = fmt::format("did you mean {}? {}", meant, fix);
      break;
    }
    throw tensor::ConfigError(fmt::format("command line: {}: {}.\n  Fix: {}", name, printable(error.what()), fix));
  }

  /// Options and commands that may follow `command`.
  static std::vector<std::string> words_of(const CLI::App& command) {
    std::vector<std::string> words;
    for (const CLI::Option* option : command.get_options())
      for (const std::string& name : option->get_lnames()) words.push_back("--" + name);
    for (const CLI::App* child : command.get_subcommands(nullptr)) words.push_back(child->get_name());
    return words;
  }

  CLI::App app_{"Trains GPT-style language models, as one TOML file describes them.", "trainer"};
  CLI::App *train_app_ = nullptr, *eval_app_ = nullptr, *sample_app_ = nullptr, *verify_app_ = nullptr,
           *plan_app_ = nullptr;
  std::optional<CheckpointCli> checkpoint_;
  CLI::App *data_app_ = nullptr, *build_app_ = nullptr, *inspect_app_ = nullptr;
  TrainCommand train_;
  EvalCommand eval_;
  VerifyCommand verify_;
  std::string dtype_name_ = "fp64";
  PlanCommand plan_;
  SampleCommand sample_;
  DataBuildCommand build_;
  DataInspectCommand inspect_;
  std::string device_name_ = "auto", documents_name_ = "files";
  int64_t seed_ = static_cast<int64_t>(SamplingOptions{}.seed);
};

/// `trainer CONFIG ...` means `trainer train CONFIG ...`; a word that is neither command nor file is a typo.
void insert_default_command(std::vector<std::string>& arguments) {
  const std::string& first = arguments.front();
  const bool is_command = std::find(kCommands.begin(), kCommands.end(), first) != kCommands.end();
  const bool is_for_all = first == "--help" || first == "-h" || first == "--version";
  if (is_command || is_for_all) return;
  const bool is_option = first.rfind("-", 0) == 0;
  if (is_option && arguments.size() == 1) return;  // a mistyped --help
  const bool is_path = first.find_first_of("./") != std::string::npos || is_option;
  std::error_code ignored;
  if (!is_path && !std::filesystem::exists(first, ignored)) {
    const std::string meant = nearest(first, kCommands);
    throw tensor::ConfigError(fmt::format("command line: there is no command or config file \"{}\".\n  Fix: {}",
                                          printable(first),
                                          meant.empty() ? "use " + join_or(kCommands) + ", or the path of a config."
                                                        : fmt::format("did you mean 'trainer {}'?", meant)));
  }
  arguments.insert(arguments.begin(), "train");
}

}  // namespace

Command parse_command_line(std::vector<std::string> arguments) {
  if (arguments.empty()) {
    throw tensor::ConfigError(
        "command line: nothing to do.\n  Fix: give a config, as in 'trainer configs/quickstart.toml'; 'trainer --help' "
        "tells more.");
  }
  insert_default_command(arguments);
  return CommandLine().parse(std::move(arguments));
}

}  // namespace trainer
