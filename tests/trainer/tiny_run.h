#pragma once
/// A run that takes milliseconds: token files with something to learn in them, and a config that uses much of what
/// there is.

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/directory.h"
#include "data/token_writer.h"
#include "tests/support/temporary_folder.h"
#include "trainer/config_reader.h"
#include "trainer/training_run.h"

namespace trainer {

/// Documents whose next token is one of four that the token before allows: a loss of ln 4 = 1.39 can be learned.
/// Integer arithmetic alone, so that every machine writes the same file.
inline void write_corpus(const std::string& prefix, uint64_t seed, int num_documents) {
  data::TokenWriter writer(prefix, data::TokenDtype::u16);
  const auto draw = [&seed](uint64_t bound) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % bound;
  };
  for (int document = 0; document < num_documents; ++document) {
    std::vector<int32_t> ids(5 + draw(60));
    uint64_t id = draw(64);
    for (int32_t& next : ids) next = static_cast<int32_t>(id = (5 * id + 7 + 16 * draw(4)) % 64);
    writer.add_document(ids);
  }
  writer.publish();
}

/// Three files to train on, one to evaluate on, in a folder of its own.
class TinyData {
 public:
  TinyData() {
    write_corpus(folder_ / "a", 1, 60);
    write_corpus(folder_ / "b", 2, 20);
    write_corpus(folder_ / "c", 3, 7);
    write_corpus(folder_ / "valid", 4, 15);
  }
  const tests::TemporaryFolder& folder() const { return folder_; }

  /// 12 steps, evaluated after 5, 10 and 12, saved after 4, 8 and 12.
  std::string config_text() const {
    return fmt::format(R"([run]
name = "tiny"
seed = 3
[model]
vocab_size = 64
num_layers = 2
hidden_size = 32
num_heads = 4
num_kv_heads = 2
seq_len = 16
dropout = 0.1
[train]
steps = 12
global_batch_size = 4
micro_batch_size = 2
eval_every = 5
eval_steps = 2
[optimizer]
lr = 1e-2
[lr_schedule]
warmup_steps = 3
min_lr = 1e-3
[data]
train = [{{path = "{0}/a", weight = 2}}, {{path = "{0}/b", weight = 1}}, {{path = "{0}/c", weight = 0.5}}]
valid = "{0}/valid"
document_mask = true
[checkpoint]
every_steps = 4
[cluster]
peak_tflops = 1
)",
                       folder_.path());
  }

  /// The config of a run in `dir`; `overrides` as --set takes them.
  Config config(const std::string& dir, std::vector<std::string> overrides = {}) const {
    overrides.insert(overrides.begin(), fmt::format("run.dir=\"{}\"", dir));
    return parse_config(config_text(), "tiny.toml", overrides);
  }

 private:
  tests::TemporaryFolder folder_;
};

inline tensor::Backend tiny_backend() { return tensor::make_cpu_backend({.num_threads = 2}); }

/// Runs in this process, in silence.
inline tensor::ExitCode train_here(const Config& config) {
  tensor::Backend backend = tiny_backend();
  const OneRank alone(config);
  return TrainingRun({.config = config, .backend = backend, .context = alone.context, .console = nullptr}).run();
}

/// The learner of a run of one rank, which is this process.
class LearnerAlone : private OneRank, public Learner {
 public:
  LearnerAlone(const Config& config, tensor::Backend& backend)
      : OneRank(config), Learner(config, backend, OneRank::context) {}
  using Learner::context;
};

inline std::string name_of(const StateFragment& fragment) { return fragment.kind + "/" + fragment.parameter->name(); }

/// The lines of metrics.jsonl without what depends on the clock and on memory. Numbers are written so that they read
/// back as the same bits: equal text is bitwise equality.
inline std::vector<std::string> trajectory(const std::string& run_dir) {
  std::vector<std::string> lines;
  std::ifstream file(run_dir + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    auto object = nlohmann::ordered_json::parse(line);
    for (const char* key : {"tokens_per_second", "step_ms", "mfu", "memory_bytes", "save_stall_ms"}) object.erase(key);
    lines.push_back(object.dump());
  }
  return lines;
}

inline std::string checkpoint_at(const std::string& run_dir, int64_t step) {
  return run_dir + "/checkpoints/" + checkpoint::folder_name(step);
}

/// Every file below a folder and what is in it.
inline std::map<std::string, std::string> files_in(const std::string& dir) {
  std::map<std::string, std::string> files;
  if (!std::filesystem::exists(dir)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
    if (entry.is_regular_file()) files[entry.path().string().substr(dir.size())] = tests::read_file(entry.path());
  }
  return files;
}

}  // namespace trainer
