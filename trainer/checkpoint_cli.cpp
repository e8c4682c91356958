#include "trainer/checkpoint_cli.h"

#include <CLI/CLI.hpp>

namespace trainer {

namespace {

constexpr const char* kDirHelp = "Folder of a run's checkpoints: checkpoint.dir of its config";
constexpr const char* kPathHelp = "A checkpoint: a folder step_00001000, or one plain .h5 file";

CLI::Validator at_least(int64_t min) { return CLI::Range(min, std::numeric_limits<int64_t>::max()).description(""); }

}  // namespace

CheckpointCli::CheckpointCli(CLI::App& app)
    : group_(app.add_subcommand("checkpoint", "List, check, compare, convert and delete checkpoints")) {
  group_->require_subcommand(1);
  group_->footer(
      "None of these needs the config, the ranks or the layout that wrote the checkpoint, and none needs memory for "
      "more\n"
      "than its largest tensors.\n\n"
      "Examples:\n"
      "  trainer checkpoint list runs/a/checkpoints\n"
      "  trainer checkpoint verify runs/a/checkpoints/step_00001000\n"
      "A checkpoint with a file KEEP in its folder is never deleted, neither by a run nor by prune.");
  add_readers();
  add_writers();
}

void CheckpointCli::add_readers() {
  list_app_ = group_->add_subcommand("list", "Which checkpoints a run has, and whether all of their files are there");
  list_app_->add_option("DIR", list_.dir, kDirHelp)->required();
  list_app_->footer(
      "Reads manifests and indexes, no tensors: 'whole' means that every file is there and has its size, and that the\n"
      "index is the one that was written; 'verify' reads the rest.\n\n"
      "Example:\n"
      "  trainer checkpoint list runs/a/checkpoints");

  inspect_app_ = group_->add_subcommand("inspect", "What is in a checkpoint: run, tensors with dtype and shape, files");
  inspect_app_->add_option("PATH", inspect_.path, kPathHelp)->required();
  inspect_app_->add_flag("--config", inspect_.shows_config, "Print the config of the run that wrote it, and only that");
  inspect_app_->footer(
      "Examples:\n"
      "  trainer checkpoint inspect runs/a/checkpoints/step_00001000\n"
      "  trainer checkpoint inspect runs/a/checkpoints/step_00001000 --config > again.toml");

  verify_app_ = group_->add_subcommand("verify", "Read all of it, and compare every block with its hash");
  verify_app_->add_option("PATH", verify_.paths, kPathHelp)->required();
  verify_app_->footer(
      "Names every file and tensor that is damaged, and exits with 5 where there is one.\n\n"
      "Example:\n"
      "  trainer checkpoint verify runs/a/checkpoints/step_*");

  diff_app_ = group_->add_subcommand("diff", "Compare the state in two checkpoints, tensor by tensor, bit by bit");
  diff_app_->add_option("A", diff_.a, kPathHelp)->required();
  diff_app_->add_option("B", diff_.b, "The other one")->required();
  diff_app_->footer(
      "Layouts do not matter: a run on 8 ranks and one on 2 are equal where their states are. Prints the number of\n"
      "elements that differ and the largest difference of each tensor, and exits with 7 where there is one.\n\n"
      "Example:\n"
      "  trainer checkpoint diff runs/a/checkpoints/step_00001000 runs/b/checkpoints/step_00001000");
}

void CheckpointCli::add_writers() {
  consolidate_app_ = group_->add_subcommand("consolidate", "Write a checkpoint as one plain HDF5 file");
  consolidate_app_->add_option("PATH", consolidate_.path, kPathHelp)->required();
  consolidate_app_->add_option("OUT", consolidate_.output, "The new file")->required()->type_name("FILE");
  consolidate_app_->footer(
      "The file has every tensor under its name, for h5py and other programs, and a run can go on from it\n"
      "(checkpoint.resume). Nothing is written unless every block has its hash.\n\n"
      "Example:\n"
      "  trainer checkpoint consolidate runs/a/checkpoints/step_00001000 model.h5");

  rebuild_app_ = group_->add_subcommand("rebuild-index", "Make a lost index.h5 or MANIFEST.json again from the shards");
  rebuild_app_->add_option("PATH", rebuild_.path, "The folder of one checkpoint")->required();
  rebuild_app_->footer(
      "Every shard says what it holds. Where one is missing, the elements it had are, and nothing is written. Reads "
      "no\n"
      "tensors: 'verify' does, afterwards. Leaves a checkpoint alone that is whole.\n\n"
      "Example:\n"
      "  trainer checkpoint rebuild-index runs/a/checkpoints/step_00001000");

  prune_app_ = group_->add_subcommand("prune", "Delete old checkpoints");
  prune_app_->add_option("DIR", prune_.dir, kDirHelp)->required();
  prune_app_->add_option("--keep-last", prune_.retention.keep_last, "How many of the newest ones stay")
      ->required()
      ->check(at_least(1));
  prune_app_->add_option("--keep-every", prune_.retention.keep_every, "Those of steps that this divides stay, too")
      ->check(at_least(1));
  prune_app_->footer(
      "Reads the newest ones as 'verify' does until that many of them are good, and deletes what is older. Damaged "
      "ones\n"
      "do not count and are left alone, for you to look at; one with a file KEEP in its folder stays.\n\n"
      "Examples:\n"
      "  trainer checkpoint prune runs/a/checkpoints --keep-last 2 --keep-every 10000\n"
      "  touch runs/a/checkpoints/step_00001000/KEEP");
}

bool CheckpointCli::is_chosen() const { return group_->parsed(); }

CheckpointCommand CheckpointCli::chosen() const {
  if (list_app_->parsed()) return list_;
  if (inspect_app_->parsed()) return inspect_;
  if (verify_app_->parsed()) return verify_;
  if (diff_app_->parsed()) return diff_;
  if (consolidate_app_->parsed()) return consolidate_;
  if (rebuild_app_->parsed()) return rebuild_;
  return prune_;
}

}  // namespace trainer
