#include "trainer/run_folder.h"

#include <filesystem>

#include "checkpoint/directory.h"
#include "checkpoint/file.h"
#include "trainer/config_reader.h"

namespace trainer {

namespace {

void create_folder(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (!error) return;
  throw tensor::StorageError(
      fmt::format("The folder {} cannot be created: {}.\n  The run keeps its log, metrics and checkpoints there.\n"
                  "  Fix: set run.dir to a folder that this user may write to.",
                  dir, error.message()));
}

void write_file(const std::string& path, const std::string& text) {
  checkpoint::TemporaryFile file(path);
  file.write_at(0, text.data(), std::ssize(text));
  file.publish();
}

}  // namespace

void create_run_folder(const Config& config) {
  create_folder(config.run.dir);
  create_folder(config.checkpoint.dir);
}

void remove_leftovers(const Config& config) {
  const RunFolder folder{config.run.dir};
  checkpoint::remove_leftovers(config.checkpoint.dir);
  for (const std::string& file : {folder.config_file(), folder.plan_file()}) checkpoint::remove_temporaries(file);
}

std::vector<std::string> lock_files(const Config& config) {
  const std::string name = "/lock", &checkpoints = config.checkpoint.dir;
  if (checkpoints.starts_with(config.run.dir + "/")) return {config.run.dir + name};
  return {config.run.dir + name, checkpoints + name};
}

void write_run_files(const Config& config, const Plan& plan) {
  const RunFolder folder{config.run.dir};
  write_file(folder.config_file(), to_toml(config));
  write_file(folder.plan_file(), to_json(plan));
}

}  // namespace trainer
