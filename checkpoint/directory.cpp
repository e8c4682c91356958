#include "checkpoint/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "checkpoint/file.h"
#include "checkpoint/single_file.h"

namespace checkpoint {
namespace {

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kSuffix = ".h5";

/// Exactly the names that file_name() makes.
std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return {};
  const std::string_view digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || step < 0 || file_name(step) != name) return {};
  return step;
}

bool is_temporary(std::string_view name) {
  const size_t at = name.find(kTemporarySuffix);
  return at != std::string_view::npos && step_of(name.substr(0, at)).has_value();
}

/// Names in a folder; none where it does not exist.
std::vector<std::string> names_in(const std::string& dir) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(dir.c_str()), ::closedir);
  if (stream == nullptr && errno == ENOENT) return {};
  if (stream == nullptr) {
    throw tensor::StorageError(
        fmt::format("{}: the checkpoint folder cannot be listed: {}.\n  Fix: set checkpoint.dir to "
                    "a folder that you may read.",
                    dir, errno_text(errno)));
  }
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(stream.get())) names.emplace_back(entry->d_name);
  return names;
}

/// Deletes regular files of `dir` whose name is chosen; a link of that name stays, and so does what it points to.
void remove_files(const std::string& dir, const std::function<bool(std::string_view)>& is_chosen) {
  const std::vector<std::string> names = names_in(dir);
  if (std::none_of(names.begin(), names.end(), is_chosen)) return;
  const FileDescriptor folder = open_folder(dir);
  for (const std::string& name : names) {
    struct stat status {};
    if (!is_chosen(name) || ::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(status.st_mode)) {
      continue;
    }
    if (::unlinkat(folder.get(), name.c_str(), 0) != 0 && errno != ENOENT) {
      throw tensor::StorageError(
          fmt::format("{}/{}: an old checkpoint cannot be deleted: {}.\n  Fix: make the folder "
                      "writable, or set checkpoint.keep_last = 0 to keep all.",
                      dir, name, errno_text(errno)));
    }
  }
}

/// Newer ones than `step` do not count: they belong to a run that went further, or were found damaged.
void keep_newest(const std::string& dir, int64_t step, int64_t keep_last) {
  if (keep_last <= 0) return;
  std::vector<Candidate> candidates = list_checkpoints(dir);
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.step > step; });
  if (std::ssize(candidates) <= keep_last) return;
  const int64_t oldest_kept = candidates[candidates.size() - static_cast<size_t>(keep_last)].step;
  remove_files(dir, [&](std::string_view name) {
    const std::optional<int64_t> found = step_of(name);
    return found && *found < oldest_kept;
  });
}

void create_folder(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) {
    throw tensor::StorageError(
        fmt::format("{}: the checkpoint folder cannot be created: {}.\n  Fix: set checkpoint.dir "
                    "to a place that you may write.",
                    dir, error.message()));
  }
}

}  // namespace

std::string file_name(int64_t step) { return fmt::format("{}{:08d}{}", kPrefix, step, kSuffix); }

std::vector<Candidate> list_checkpoints(const std::string& dir) {
  std::vector<Candidate> candidates;
  for (const std::string& name : names_in(dir)) {
    if (const std::optional<int64_t> step = step_of(name)) candidates.push_back({*step, dir + "/" + name});
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return candidates;
}

std::optional<Candidate> latest_checkpoint(const std::string& dir) {
  std::vector<Candidate> candidates = list_checkpoints(dir);
  if (candidates.empty()) return {};
  return std::move(candidates.back());
}

std::string save_in(const std::string& dir, const RunInfo& info, std::span<const NamedTensor> tensors,
                    int64_t keep_last) {
  create_folder(dir);
  require_free_space(dir, file_bytes(info, tensors));
  std::string path = dir + "/" + file_name(info.progress.step);
  save(path, info, tensors);
  keep_newest(dir, info.progress.step, keep_last);
  return path;
}

std::optional<Resumed> resume_newest(const std::string& dir, std::span<const NamedTensor> tensors) {
  std::vector<Candidate> candidates = list_checkpoints(dir);
  if (candidates.empty()) return {};
  Resumed resumed;
  std::string reasons;
  for (auto candidate = candidates.rbegin(); candidate != candidates.rend(); ++candidate) {
    try {
      resumed.info = load(candidate->path, tensors);
      resumed.path = candidate->path;
      return resumed;
    } catch (const DamagedError& error) {
      resumed.warnings.push_back(fmt::format("{}\n  An older checkpoint is tried.", error.what()));
      reasons += fmt::format("  {}\n", error.what());
    }
  }
  throw tensor::CheckpointError(fmt::format(
      "{}: all {} checkpoints are damaged:\n{}  Fix: set checkpoint.resume to a checkpoint elsewhere, or start "
      "a new run in another run.dir.",
      dir, candidates.size(), reasons));
}

void remove_temporary_files(const std::string& dir) { remove_files(dir, is_temporary); }

void require_free_space(const std::string& dir, int64_t bytes) {
  struct statvfs status {};
  if (::statvfs(dir.c_str(), &status) != 0) {
    throw tensor::StorageError(fmt::format(
        "{}: the free space of the checkpoint folder is unknown: {}.\n  Fix: set checkpoint.dir to a folder on "
        "a working file system.",
        dir, errno_text(errno)));
  }
  const double free_bytes = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
  if (free_bytes >= static_cast<double>(bytes)) return;
  throw tensor::StorageError(fmt::format(
      "{}: a checkpoint of this run takes {:.1f} MB, and {:.1f} MB are free there.\n  Fix: free space, lower "
      "checkpoint.keep_last, or set checkpoint.dir to another disk.",
      dir, static_cast<double>(bytes) / 1e6, free_bytes / 1e6));
}

}  // namespace checkpoint
