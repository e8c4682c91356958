#pragma once
/// `trainer checkpoint ...`: looking after checkpoints, in one process, whatever layout wrote them.

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/directory.h"

namespace CLI {
class App;
}

namespace trainer {

struct CheckpointListCommand {
  std::string dir;
};

struct CheckpointInspectCommand {
  std::string path;
  bool shows_config = false;  ///< the config of the run, and nothing else
};

struct CheckpointVerifyCommand {
  std::vector<std::string> paths;
};

struct CheckpointDiffCommand {
  std::string a, b;
};

struct CheckpointConsolidateCommand {
  std::string path;
  std::string output;
};

struct CheckpointRebuildIndexCommand {
  std::string path;
};

struct CheckpointPruneCommand {
  std::string dir;
  checkpoint::Retention retention;
};

using CheckpointCommand =
    std::variant<CheckpointListCommand, CheckpointInspectCommand, CheckpointVerifyCommand, CheckpointDiffCommand,
                 CheckpointConsolidateCommand, CheckpointRebuildIndexCommand, CheckpointPruneCommand>;

/// The part of the parser for these. Outlives the parse.
class CheckpointCli {
 public:
  explicit CheckpointCli(CLI::App& app);

  bool is_chosen() const;
  CheckpointCommand chosen() const;

 private:
  void add_readers();
  void add_writers();

  CLI::App* group_;
  CLI::App *list_app_ = nullptr, *inspect_app_ = nullptr, *verify_app_ = nullptr, *diff_app_ = nullptr,
           *consolidate_app_ = nullptr, *rebuild_app_ = nullptr, *prune_app_ = nullptr;
  CheckpointListCommand list_;
  CheckpointInspectCommand inspect_;
  CheckpointVerifyCommand verify_;
  CheckpointDiffCommand diff_;
  CheckpointConsolidateCommand consolidate_;
  CheckpointRebuildIndexCommand rebuild_;
  CheckpointPruneCommand prune_;
};

}  // namespace trainer
