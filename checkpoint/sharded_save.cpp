#include "checkpoint/sharded_save.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "checkpoint/directory.h"
#include "checkpoint/index_file.h"
#include "checkpoint/manifest.h"

namespace checkpoint {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr int kRanksPerFolder = 256;

std::string shard_path(int rank) {
  return fmt::format("shards/{:03d}/rank_{:05d}.h5", rank / kRanksPerFolder, rank);
}

/// What one rank wrote, for rank 0's index. A fragment: box, range, offset, blocks, then their hashes.
struct Report {
  std::string error;  ///< empty: all is on disk
  Json tensors = Json::array();
  Numbers numbers;  ///< file bytes, then the fragments
};

Report write_shard(const std::string& path, const RunInfo& run, std::span<const LocalFragment> owned) {
  Report report;
  try {
    ShardWriter writer(path, run, owned);
    for (size_t i = 0; i < owned.size(); ++i) writer.write(i);
    report.numbers.push_back(writer.publish());
    for (size_t i = 0; i < owned.size(); ++i) {
      const TensorInfo& info = owned[i].info;
      const Fragment& f = owned[i].fragment;
      Json sizes = Json::array();
      for (int dim = 0; dim < info.shape.num_dims(); ++dim) sizes.push_back(info.shape[dim]);
      report.tensors.push_back({info.name, static_cast<int>(info.dtype), sizes});
      report.numbers.insert(report.numbers.end(),
                            {f.box.first_row, f.box.num_rows, f.box.first_column, f.box.num_columns, f.range.begin,
                             f.range.end, writer.offsets()[i], std::ssize(writer.hashes()[i])});
      for (const uint64_t hash : writer.hashes()[i]) report.numbers.push_back(static_cast<int64_t>(hash));
    }
  } catch (const tensor::StorageError& error) {
    report.error = error.what();
  }
  return report;
}

TensorInfo tensor_of(const Json& row) {
  const Json& sizes = row[2];
  return {.name = row[0],
          .dtype = static_cast<tensor::Dtype>(row[1].get<int>()),
          .shape = sizes.size() == 1 ? tensor::Shape{sizes[0].get<int64_t>()}
                                     : tensor::Shape{sizes[0].get<int64_t>(), sizes[1].get<int64_t>()}};
}

/// Joins what all ranks wrote: tensors in order of name, fragments in that of tensors.
class IndexBuilder {
 public:
  explicit IndexBuilder(const RunInfo& info) { index_.info = info; }

  void add(int rank, const Json& tensors, const Numbers& numbers) {
    if (tensors.empty()) return;
    const int64_t file = std::ssize(index_.files);
    index_.files.push_back({shard_path(rank), numbers[0]});
    auto next = numbers.begin() + 1;
    for (const Json& row : tensors) {
      const TensorInfo info = tensor_of(row);
      StoredFragment stored{.fragment = {.box = {next[0], next[1], next[2], next[3]}, .range = {next[4], next[5]}},
                            .file = file,
                            .offset = next[6],
                            .first_block = std::ssize(index_.block_hashes)};
      const int64_t num_hashes = next[7];
      next += 8;
      for (int64_t i = 0; i < num_hashes; ++i) index_.block_hashes.push_back(static_cast<uint64_t>(*next++));
      by_name_[info.name].info = info;
      by_name_[info.name].fragments.push_back(stored);
    }
  }

  Index build() {
    for (auto& [name, tensor] : by_name_) {
      for (StoredFragment& stored : tensor.fragments) {
        stored.fragment.tensor = std::ssize(index_.tensors);
        index_.fragments.push_back(stored);
      }
      index_.tensors.push_back(tensor.info);
    }
    check_index(index_, "the new checkpoint");
    return std::move(index_);
  }

 private:
  struct OfTensor {
    TensorInfo info;
    std::vector<StoredFragment> fragments;
  };
  Index index_;
  std::map<std::string, OfTensor> by_name_;
};

std::string make_folders(const std::string& path, int num_ranks) {
  for (int rank = 0; rank < num_ranks; rank += kRanksPerFolder) {
    const std::string folder = folder_of(path + "/" + shard_path(rank));
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
      return fmt::format("{}: the folder of a new checkpoint cannot be made: {}.\n  Fix: free space there, or set "
                         "checkpoint.dir to a place that you may write.",
                         folder, error.message());
    }
  }
  return {};
}

/// Rank 0, after every rank's shard is on disk.
void publish(const std::string& temporary, const std::string& path, const Index& index) {
  write_index(temporary + "/" + kIndexFile, index);
  write_manifest(temporary, index);
  for (const std::string& folder : {std::string("/shards"), std::string()}) sync_folder(temporary + folder);
  std::error_code error;
  fs::remove_all(path, error);  // of the same step: a run that went back saves it again
  fs::rename(temporary, path, error);
  if (error) {
    throw tensor::StorageError(
        fmt::format("{}: the new checkpoint cannot be given its name: {}.\n  Fix: look at the disk or network file system "
                    "behind that folder.",
                    path, error.message()));
  }
  sync_folder(folder_of(path));
}

/// What went wrong on any rank, in one text.
std::string errors_of(const std::vector<std::string>& of_ranks) {
  std::string text;
  int more = 0;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (of_ranks[rank].empty()) continue;
    if (!text.empty()) {
      ++more;
    } else {
      text = fmt::format("rank {}: {}", rank, of_ranks[rank]);
    }
  }
  return more > 0 ? text + fmt::format("\n  {} more ranks could not write either.", more) : text;
}

class Save {
 public:
  Save(const Wire& wire, const std::string& dir, const RunInfo& info)
      : wire_(wire), info_(info), path_(dir + "/" + folder_name(info.progress.step)) {}

  std::string run(std::span<const LocalFragment> owned) {
    begin();
    Report report;
    if (!owned.empty()) report = write_shard(temporary_ + "/" + shard_path(wire_.rank()), info_, owned);
    const std::vector<std::string> errors = wire_.gather(report.error);
    const std::vector<std::string> tensors = wire_.gather(report.tensors.dump());
    const std::vector<Numbers> numbers = wire_.gather(report.numbers);
    std::string failure;
    if (wire_.is_root()) {
      failure = errors_of(errors);
      if (failure.empty()) failure = commit(tensors, numbers);
      if (!failure.empty()) remove_temporary();
    }
    fail_if(wire_.from_root(failure));
    return path_;
  }

 private:
  void begin() {
    std::string failure;
    if (wire_.is_root()) {
      temporary_ = fmt::format("{}{}{:08x}", path_, kTemporarySuffix, std::random_device()());
      failure = make_folders(temporary_, wire_.size());
      if (!failure.empty()) remove_temporary();
    }
    fail_if(wire_.from_root(failure));
    temporary_ = wire_.from_root(temporary_);
  }

  std::string commit(const std::vector<std::string>& tensors, const std::vector<Numbers>& numbers) {
    try {
      IndexBuilder builder(info_);
      for (size_t rank = 0; rank < tensors.size(); ++rank) {
        builder.add(static_cast<int>(rank), Json::parse(tensors[rank]), numbers[rank]);
        if (!numbers[rank].empty()) sync_folder(folder_of(temporary_ + "/" + shard_path(static_cast<int>(rank))));
      }
      publish(temporary_, path_, builder.build());
      return {};
    } catch (const tensor::StorageError& error) {
      return error.what();
    }
  }

  void remove_temporary() {
    std::error_code error;
    fs::remove_all(temporary_, error);
  }
  static void fail_if(const std::string& failure) {
    if (!failure.empty()) throw tensor::StorageError(failure);
  }

  const Wire& wire_;
  const RunInfo& info_;
  std::string path_, temporary_;
};

}  // namespace

std::string save_sharded(const Wire& wire, const std::string& dir, const RunInfo& info,
                         std::span<const LocalFragment> owned) {
  return Save(wire, dir, info).run(owned);
}

}  // namespace checkpoint
