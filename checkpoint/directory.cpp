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
#include <memory>
#include <string_view>

#include "checkpoint/file.h"

namespace checkpoint {
namespace {

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kTrashPrefix = "trash_";

/// Exactly the names that folder_name() makes.
std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return {};
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || step < 0 || folder_name(step) != name) return {};
  return step;
}

/// What an interrupted save or deletion leaves.
bool is_leftover(std::string_view name) {
  if (name.starts_with(kTrashPrefix)) return step_of(name.substr(kTrashPrefix.size())).has_value();
  const size_t at = name.find(kTemporarySuffix);
  return at != std::string_view::npos && step_of(name.substr(0, at)).has_value();
}

/// "DIR/step_00000100" -> "DIR/trash_step_00000100"
std::string trash_of(const std::string& path) {
  return fmt::format("{}/{}{}", folder_of(path), kTrashPrefix, path.substr(path.find_last_of('/') + 1));
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

bool is_real_folder(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

[[noreturn]] void naming_failed(const std::string& path, int error) {
  throw tensor::StorageError(fmt::format(
      "{}: the new checkpoint cannot be given its name: {}.\n  Fix: look at the disk or network file system "
      "behind that folder.",
      path, errno_text(error)));
}

/// Gives `temporary` the name `path`. Returns where that is now which had the name before; empty: nothing had.
std::string take_name(const std::string& temporary, const std::string& path) {
  if (::rename(temporary.c_str(), path.c_str()) == 0) return "";
  if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR) naming_failed(path, errno);
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0) return temporary;
  if (errno != EINVAL && errno != ENOSYS) naming_failed(path, errno);
  // this file system cannot exchange names: for a moment nothing has it
  const std::string trash = trash_of(path);
  std::error_code ignored;
  std::filesystem::remove_all(trash, ignored);
  if (::rename(path.c_str(), trash.c_str()) != 0) naming_failed(path, errno);
  if (::rename(temporary.c_str(), path.c_str()) == 0) return trash;
  const int error = errno;
  (void)::rename(trash.c_str(), path.c_str());
  naming_failed(path, error);
}

/// A run that went back saves the step of a pinned checkpoint again: the pinned one stays, under another name.
void set_aside(const std::string& path) {
  std::string aside;
  for (int i = 1; aside.empty() || std::filesystem::exists(aside); ++i) aside = fmt::format("{}.kept-{}", path, i);
  if (::rename(path.c_str(), aside.c_str()) != 0) naming_failed(aside, errno);
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

std::string folder_name(int64_t step) { return fmt::format("{}{:08d}", kPrefix, step); }

std::vector<Candidate> list_checkpoints(const std::string& dir) {
  std::vector<Candidate> candidates;
  for (const std::string& name : names_in(dir)) {
    const std::optional<int64_t> step = step_of(name);
    if (step && is_real_folder(dir + "/" + name)) candidates.push_back({*step, dir + "/" + name});
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return candidates;
}

std::optional<Candidate> latest_checkpoint(const std::string& dir) {
  std::vector<Candidate> candidates = list_checkpoints(dir);
  if (candidates.empty()) return {};
  return std::move(candidates.back());
}

void publish_checkpoint(const std::string& temporary, const std::string& path) {
  if (is_pinned(path)) set_aside(path);
  const std::string old = take_name(temporary, path);
  sync_folder(folder_of(path));
  std::error_code error;  // what cannot be deleted is in nobody's way
  if (!old.empty()) std::filesystem::remove_all(old, error);
}

void remove_checkpoint(const std::string& dir, int64_t step) {
  const std::string name = folder_name(step);
  const std::string trash = trash_of(dir + "/" + name);
  std::error_code error;
  std::filesystem::remove_all(trash, error);
  std::filesystem::rename(dir + "/" + name, trash, error);
  if (!error) std::filesystem::remove_all(trash, error);
  if (error) {
    throw tensor::StorageError(
        fmt::format("{}/{}: an old checkpoint cannot be deleted: {}.\n  Fix: make the folder writable, or set "
                    "checkpoint.keep_last = 0 to keep all.",
                    dir, name, error.message()));
  }
}

bool is_pinned(const std::string& path) {
  struct stat status {};
  return ::stat((path + "/" + kKeepFile).c_str(), &status) == 0;
}

/// Newer ones than `step` do not count: they belong to a run that went further, or were found damaged.
void keep_newest(const std::string& dir, int64_t step, const Retention& retention) {
  if (retention.keep_last <= 0) return;
  std::vector<Candidate> candidates = list_checkpoints(dir);
  std::erase_if(candidates, [&](const Candidate& candidate) { return candidate.step > step; });
  for (int64_t i = 0; i + retention.keep_last < std::ssize(candidates); ++i) {
    const Candidate& candidate = candidates[static_cast<size_t>(i)];
    const bool is_round = retention.keep_every > 0 && candidate.step % retention.keep_every == 0;
    if (!is_round && !is_pinned(candidate.path)) remove_checkpoint(dir, candidate.step);
  }
}

void point_to_latest(const std::string& dir, int64_t step) {
  const std::string text = folder_name(step) + "\n";
  TemporaryFile file(dir + "/" + kLatestFile);
  file.write_at(0, text.data(), std::ssize(text));
  file.publish();
}

void create_checkpoint_folder(const std::string& dir) { create_folder(dir); }

void remove_leftovers(const std::string& dir) {
  for (const std::string& name : names_in(dir)) {
    std::error_code error;  // what cannot be deleted is in nobody's way
    if (is_leftover(name) && is_real_folder(dir + "/" + name)) std::filesystem::remove_all(dir + "/" + name, error);
  }
  remove_temporaries(dir + "/" + kLatestFile);
}

void remove_temporaries(const std::string& path) {
  const std::string folder = folder_of(path), prefix = path.substr(path.find_last_of('/') + 1) + kTemporarySuffix;
  for (const std::string& name : names_in(folder)) {
    std::error_code error;
    const std::string temporary = folder + "/" + name;
    if (name.starts_with(prefix) && !is_real_folder(temporary)) std::filesystem::remove(temporary, error);
  }
}

void require_free_space(const std::string& dir, int64_t bytes) {
  const TemporaryFile probe(dir + "/" + kLatestFile);  // says why where one may not write
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
