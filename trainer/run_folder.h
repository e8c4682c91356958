#pragma once
/// The folder of a run: config.toml (resolved), log.txt, metrics.jsonl, checkpoints/.

#include <string>

#include "trainer/config.h"

namespace trainer {

struct RunFolder {
  std::string dir;
  std::string log_file() const { return dir + "/log.txt"; }
  std::string metrics_file() const { return dir + "/metrics.jsonl"; }
  std::string config_file() const { return dir + "/config.toml"; }
};

/// Creates the folder and the one for checkpoints where they are missing, and writes config.toml. StorageError names
/// the folder and what the system said.
RunFolder prepare_run_folder(const Config& config);

}  // namespace trainer
