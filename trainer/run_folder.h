#pragma once
/// The folder of a run: config.toml (resolved), plan.json (of rank 0), log.txt, metrics.jsonl, checkpoints/, trace/,
/// lock.

#include <string>
#include <vector>

#include "trainer/plan.h"

namespace trainer {

struct RunFolder {
  std::string dir;
  std::string log_file() const { return dir + "/log.txt"; }
  std::string metrics_file() const { return dir + "/metrics.jsonl"; }
  std::string config_file() const { return dir + "/config.toml"; }
  std::string trace_dir() const { return dir + "/trace"; }
  std::string plan_file() const { return dir + "/plan.json"; }
};

/// The folder and the one for checkpoints, where they are missing.
/// StorageError names the folder and what the system said.
void create_run_folder(const Config& config);
/// Deletes what a killed run left half-made. Only under the run's lock.
void remove_leftovers(const Config& config);
/// Of run.dir, and of checkpoint.dir where that is elsewhere.
std::vector<std::string> lock_files(const Config& config);
/// config.toml and plan.json.
void write_run_files(const Config& config, const Plan& plan);

}  // namespace trainer
