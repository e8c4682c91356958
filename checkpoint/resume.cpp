#include "checkpoint/resume.h"

#include <fmt/core.h>

#include "checkpoint/directory.h"

namespace checkpoint {

namespace {

/// Rank 0's checkpoint, on all ranks. DamagedError on all where it is not whole.
OpenCheckpoint open_together(const Wire& wire, const std::string& path) {
  OpenCheckpoint opened;
  std::string failure;
  if (wire.is_root()) {
    try {
      opened = open_checkpoint(path);
    } catch (const DamagedError& error) {
      failure = error.what();
    }
  }
  failure = wire.from_root(failure);
  if (!failure.empty()) throw DamagedError(failure);
  const Numbers numbers = wire.from_root(wire.is_root() ? encode_numbers(opened.index) : Numbers{});
  const std::string text = wire.from_root(wire.is_root() ? encode_text(opened.index) : std::string());
  const std::string folder = wire.from_root(opened.folder);
  return wire.is_root() ? std::move(opened) : OpenCheckpoint{decode_index(numbers, text), folder};
}

}  // namespace

Resumed resume_from(const Wire& wire, const std::string& path, std::span<const LocalFragment> wanted) {
  const OpenCheckpoint opened = open_together(wire, path);
  require_same_tensors(wire, opened, path, wanted);
  load_fragments(wire, opened, wanted);
  return {.info = opened.index.info, .path = path, .warnings = {}};
}

std::optional<Resumed> resume_newest(const Wire& wire, const std::string& dir, std::span<const LocalFragment> wanted) {
  std::vector<Candidate> candidates;
  if (wire.is_root()) candidates = list_checkpoints(dir);
  const int64_t count = wire.sum(std::ssize(candidates));
  std::vector<std::string> warnings;
  std::string reasons;
  for (int64_t i = count - 1; i >= 0; --i) {
    const std::string path = wire.is_root() ? candidates[static_cast<size_t>(i)].path : std::string();
    try {
      Resumed resumed = resume_from(wire, wire.from_root(path), wanted);
      resumed.warnings = warnings;
      return resumed;
    } catch (const DamagedError& error) {  // the same on all ranks
      warnings.push_back(fmt::format("{}\n  An older checkpoint is tried.", error.what()));
      reasons += fmt::format("  {}\n", error.what());
    }
  }
  if (count == 0) return {};
  throw tensor::CheckpointError(fmt::format(
      "{}: all {} checkpoints are damaged:\n{}  Fix: set checkpoint.resume to a checkpoint elsewhere, or start "
      "a new run in another run.dir.",
      dir, count, reasons));
}

}  // namespace checkpoint
