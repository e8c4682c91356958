#include "checkpoint/conversion.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "checkpoint/block_reader.h"
#include "checkpoint/index_file.h"
#include "checkpoint/manifest.h"
#include "checkpoint/single_file.h"

namespace checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShardFolder = "shards";

/// Paths of the shards from the checkpoint's folder, in order of rank. What an interrupted save left is not among them.
std::vector<std::string> shards_in(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder + "/" + kShardFolder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    const bool is_shard =
        name.starts_with("rank_") && name.ends_with(".h5") && entry->symlink_status().type() == fs::file_type::regular;
    if (is_shard) paths.push_back(entry->path().lexically_relative(folder));
  }
  if (error) {
    throw tensor::CheckpointError(
        fmt::format("{}/{}: the shards cannot be listed: {}.\n  Fix: give the folder of one checkpoint, as in "
                    "checkpoints/step_00001000.",
                    folder, kShardFolder, error.message()));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// Joins shards as saving does: files in order of rank, tensors in that of names, fragments in that of tensors.
class Merge {
 public:
  explicit Merge(const std::string& folder) : folder_(folder) {}

  void add(const Index& shard) {
    const std::string path = folder_ + "/" + shard.files.front().path;
    if (index_.files.empty()) index_.info = shard.info;
    if (shard.info.progress != index_.info.progress) {
      throw DamagedError(fmt::format("{}: this shard is of step {}, and others are of step {}.", path,
                                     shard.info.progress.step, index_.info.progress.step));
    }
    for (const TensorInfo& info : shard.tensors) {
      const TensorInfo& first = of_tensor_.try_emplace(info.name, OfTensor{info, {}}).first->second.info;
      if (first.dtype != info.dtype || first.shape != info.shape) {
        throw DamagedError(fmt::format("{}: \"{}\" is {} {} here and {} {} in another shard.", path, info.name,
                                       info.shape.str(), to_string(info.dtype), first.shape.str(),
                                       to_string(first.dtype)));
      }
    }
    for (StoredFragment stored : shard.fragments) {
      stored.file = std::ssize(index_.files);
      stored.first_block += std::ssize(index_.block_hashes);
      of_tensor_.at(shard.tensors[static_cast<size_t>(stored.fragment.tensor)].name).fragments.push_back(stored);
    }
    index_.block_hashes.insert(index_.block_hashes.end(), shard.block_hashes.begin(), shard.block_hashes.end());
    index_.files.push_back(shard.files.front());
  }

  Index build() {
    for (auto& [name, tensor] : of_tensor_) {
      for (StoredFragment& stored : tensor.fragments) {
        stored.fragment.tensor = std::ssize(index_.tensors);
        index_.fragments.push_back(stored);
      }
      index_.tensors.push_back(tensor.info);
    }
    check_index(index_, folder_);
    return std::move(index_);
  }

 private:
  struct OfTensor {
    TensorInfo info;
    std::vector<StoredFragment> fragments;
  };
  const std::string& folder_;
  Index index_;
  std::map<std::string, OfTensor> of_tensor_;
};

}  // namespace

void consolidate(const std::string& path, const std::string& output) {
  const OpenCheckpoint opened = open_checkpoint(path);
  BlockReader reader(opened);
  save(output, opened.index.info, opened.index.tensors, [&](size_t tensor) { return reader.read_tensor(tensor); });
}

Rebuilt rebuild_index(const std::string& path) {
  try {
    return {open_checkpoint(path).index, true};
  } catch (const DamagedError&) {
  }
  Merge merge(path);
  const std::vector<std::string> shards = shards_in(path);
  if (shards.empty())
    throw DamagedError(fmt::format("{}/{}: there are no shards to make an index from.", path, kShardFolder));
  for (const std::string& shard : shards) merge.add(read_shard(InputFile(path + "/" + shard), shard));
  Index index = merge.build();
  write_index(path + "/" + kIndexFile, index);
  write_manifest(path, index);
  return {std::move(index), false};
}

}  // namespace checkpoint
