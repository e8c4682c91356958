#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "checkpoint/block_reader.h"
#include "checkpoint/comparison.h"
#include "checkpoint/conversion.h"
#include "checkpoint/listing.h"
#include "checkpoint/verification.h"
#include "parallel/text_table.h"
#include "trainer/commands.h"
#include "trainer/printable.h"
#include "trainer/progress_format.h"

namespace trainer {

using checkpoint::Index;
using tensor::ExitCode;

namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string date(std::time_t time) {
  char text[32] = "?";
  std::tm local{};
  if (time > 0 && ::localtime_r(&time, &local) != nullptr) std::strftime(text, sizeof text, "%F %T", &local);
  return text;
}

int64_t bytes_of(const checkpoint::TensorInfo& info) { return info.shape.numel() * tensor::size_of(info.dtype); }

/// The first part of a tensor's name: "weights", "exp_avg".
std::string kind_of(const std::string& name) { return name.substr(0, name.find('/')); }

std::string describe(const checkpoint::TensorInfo& info) {
  return fmt::format("{} {}", to_string(info.dtype), info.shape.str());
}

void print_run(const checkpoint::RunInfo& info) {
  fmt::print("step {}, {} samples, {} tokens, seed {}, written by {}\n", info.progress.step,
             parallel::with_commas(info.progress.samples), parallel::with_commas(info.progress.tokens),
             info.progress.seed, printable(info.build_id));
}

ExitCode run(const CheckpointListCommand& command) {
  Rows rows = {{"checkpoint", "saved", "state", "tokens", "tensors", "files", "size"}};
  std::string damages;
  for (const checkpoint::Listed& listed : checkpoint::list(command.dir)) {
    const bool is_whole = listed.damage.empty();
    const std::string state = std::string(is_whole ? "whole" : "DAMAGED") + (listed.is_pinned ? ", KEEP" : "");
    const auto known = [&](const std::string& text) { return is_whole ? text : "?"; };
    rows.push_back({checkpoint::folder_name(listed.candidate.step), date(listed.saved_at), state,
                    known(parallel::with_commas(listed.info.progress.tokens)),
                    known(std::to_string(listed.num_tensors)), known(std::to_string(listed.num_files)),
                    known(format_bytes(listed.bytes))});
    if (!is_whole) damages += listed.damage + "\n";
  }
  if (rows.size() == 1) {
    fmt::print("{}: no checkpoints\n", command.dir);
    return ExitCode::finished;
  }
  fmt::print("{}{}", parallel::format_table(rows, 3), damages);
  return ExitCode::finished;
}

ExitCode run(const CheckpointInspectCommand& command) {
  const Index index = checkpoint::open_checkpoint(command.path).index;
  if (command.shows_config) {
    fmt::print("{}", printable_lines(index.info.config_text));
    return ExitCode::finished;
  }
  print_run(index.info);
  std::map<std::string, std::pair<int64_t, int64_t>> of_kind;  // elements, bytes
  Rows rows = {{"tensor", "dtype", "shape", "elements"}};
  for (const checkpoint::TensorInfo& info : index.tensors) {
    rows.push_back(
        {printable(info.name), to_string(info.dtype), info.shape.str(), parallel::with_commas(info.shape.numel())});
    of_kind[kind_of(info.name)].first += info.shape.numel();
    of_kind[kind_of(info.name)].second += bytes_of(info);
  }
  for (const auto& [kind, sums] : of_kind) {
    fmt::print("{}: {} elements, {}\n", printable(kind), parallel::with_commas(sums.first), format_bytes(sums.second));
  }
  fmt::print("\n{}\n", parallel::format_table(rows, 3));
  Rows files = {{"file", "bytes"}};
  for (const auto& file : index.files) files.push_back({printable(file.path), parallel::with_commas(file.bytes)});
  fmt::print("{}", parallel::format_table(files, 1));
  return ExitCode::finished;
}

ExitCode run(const CheckpointVerifyCommand& command) {
  bool is_good = true;
  for (const std::string& path : command.paths) {
    const checkpoint::Verification found = checkpoint::verify(path);
    for (const std::string& damage : found.damages) fmt::print(stderr, "{}\n", damage);
    is_good = is_good && found.damages.empty();
    fmt::print("{}: {}: {} of {} tensors in {} files, {} blocks\n", path,
               found.damages.empty() ? "good" : fmt::format("DAMAGED, {} found", found.damages.size()),
               format_bytes(found.bytes), found.num_tensors, found.num_files, found.num_blocks);
  }
  return is_good ? ExitCode::finished : ExitCode::checkpoint;
}

std::string describe(const checkpoint::TensorDifference& difference) {
  const std::string name = printable(difference.name);
  if (!difference.b) return fmt::format("only A has {} {}", name, describe(*difference.a));
  if (!difference.a) return fmt::format("only B has {} {}", name, describe(*difference.b));
  const std::string a = describe(*difference.a), b = describe(*difference.b);
  const std::string what = a == b ? a : fmt::format("{} in A, {} in B", a, b);
  if (difference.a->shape != difference.b->shape) return fmt::format("{}: {}", name, what);
  return fmt::format("{}: {}: {} elements differ, by at most {:.3g}", name, what,
                     parallel::with_commas(difference.num_different), difference.largest);
}

ExitCode run(const CheckpointDiffCommand& command) {
  const checkpoint::Comparison result = checkpoint::compare(command.a, command.b);
  const checkpoint::Progress &a = result.a.progress, &b = result.b.progress;
  const auto compare = [](const char* name, auto in_a, auto in_b) {
    if (in_a != in_b) fmt::print("{}: {} in A, {} in B\n", name, in_a, in_b);
  };
  compare("step", a.step, b.step);
  compare("samples", a.samples, b.samples);
  compare("tokens", a.tokens, b.tokens);
  compare("seed", a.seed, b.seed);
  for (const checkpoint::TensorDifference& difference : result.differences) fmt::print("{}\n", describe(difference));
  fmt::print("{}: {} tensors are equal, {} differ{}\n", result.is_equal() ? "equal" : "DIFFERENT", result.num_equal,
             result.differences.size(),
             result.a.config_text == result.b.config_text ? "" : " (the configs are not the same)");
  return result.is_equal() ? ExitCode::finished : ExitCode::numerics;
}

ExitCode run(const CheckpointConsolidateCommand& command) {
  checkpoint::consolidate(command.path, command.output);
  const Index index = checkpoint::open_checkpoint(command.output).index;
  fmt::print("wrote {}: {} tensors, {}\n", command.output, index.tensors.size(), format_bytes(index.files[0].bytes));
  return ExitCode::finished;
}

ExitCode run(const CheckpointRebuildIndexCommand& command) {
  const checkpoint::Rebuilt rebuilt = checkpoint::rebuild_index(command.path);
  fmt::print("{}: {}: step {}, {} tensors in {} files\n", command.path,
             rebuilt.was_whole ? "whole already, left alone" : "wrote index.h5 and MANIFEST.json",
             rebuilt.index.info.progress.step, rebuilt.index.tensors.size(), rebuilt.index.files.size());
  return ExitCode::finished;
}

ExitCode run(const CheckpointPruneCommand& command) {
  const auto deleted = checkpoint::prune(command.dir, command.retention);
  for (const checkpoint::Candidate& candidate : deleted) fmt::print("deleted {}\n", candidate.path);
  std::vector<std::string> left;
  for (const auto& candidate : checkpoint::list_checkpoints(command.dir)) {
    left.push_back(checkpoint::folder_name(candidate.step));
  }
  fmt::print("kept {}\n", left.empty() ? "none: there are no checkpoints" : fmt::format("{}", fmt::join(left, ", ")));
  return ExitCode::finished;
}

}  // namespace

ExitCode run(const CheckpointCommand& command) {
  return std::visit([](const auto& chosen) { return run(chosen); }, command);
}

}  // namespace trainer
