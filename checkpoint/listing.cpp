#include "checkpoint/listing.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>

#include "checkpoint/block_reader.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verification.h"

namespace checkpoint {
namespace {

struct FileFacts {
  int64_t bytes = 0;
  std::time_t changed_at = 0;
};

FileFacts facts_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {status.st_size, status.st_mtime};
}

Listed look_at(const Candidate& candidate) {
  Listed listed{.candidate = candidate, .damage = {}, .info = {}, .is_pinned = is_pinned(candidate.path)};
  const FileFacts manifest = facts_of(candidate.path + "/" + kManifestFile);
  listed.saved_at = manifest.changed_at;
  try {
    const Index index = open_checkpoint(candidate.path).index;
    listed.info = index.info;
    listed.num_files = std::ssize(index.files);
    listed.num_tensors = std::ssize(index.tensors);
    listed.bytes = manifest.bytes + facts_of(candidate.path + "/" + kIndexFile).bytes;
    for (const ShardFile& file : index.files) listed.bytes += file.bytes;
  } catch (const tensor::Error& error) {
    listed.damage = error.what();
  }
  return listed;
}

}  // namespace

std::vector<Listed> list(const std::string& dir) {
  if (!is_folder(dir)) {
    throw tensor::CheckpointError(fmt::format(
        "{}: there is no such folder.\n  Fix: give the folder of a run's checkpoints, as checkpoint.dir has it.", dir));
  }
  std::vector<Listed> all;
  for (const Candidate& candidate : list_checkpoints(dir)) all.push_back(look_at(candidate));
  return all;
}

std::vector<Candidate> prune(const std::string& dir, const Retention& retention) {
  std::vector<Listed> whole = list(dir);
  std::erase_if(whole, [](const Listed& listed) { return !listed.damage.empty(); });
  const int64_t num_last = std::max<int64_t>(retention.keep_last, 1);
  int64_t num_good = 0;
  std::vector<Candidate> old;  // newest first
  for (auto listed = whole.rbegin(); listed != whole.rend(); ++listed) {
    if (num_good < num_last) {
      num_good += verify(listed->candidate.path).damages.empty() ? 1 : 0;
      continue;
    }
    const bool is_round = retention.keep_every > 0 && listed->candidate.step % retention.keep_every == 0;
    if (!is_round && !listed->is_pinned) old.push_back(listed->candidate);
  }
  std::reverse(old.begin(), old.end());
  for (const Candidate& candidate : old) remove_checkpoint(dir, candidate.step);
  return old;
}

}  // namespace checkpoint
