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
#include "checkpoint/tensor_row.h"

namespace checkpoint {

namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

constexpr int kRanksPerFolder = 256;

std::string shard_file(int rank) { return fmt::format("shards/{:03d}/rank_{:05d}.h5", rank / kRanksPerFolder, rank); }

/// What one rank wrote, for rank 0's index. A fragment: box, range, offset, blocks, then their hashes.
struct Report {
  std::string error;  ///< empty: all is on disk
  Json tensors = Json::array();
  Numbers numbers;  ///< file bytes, then the fragments
};

Report report_of(ShardWriter& shard) {
  const WrittenShard& written = shard.wait();
  Report report{.error = written.error, .tensors = Json::array(), .numbers = {written.file_bytes}};
  if (!report.error.empty()) return report;
  for (size_t i = 0; i < shard.fragments().size(); ++i) {
    const TensorInfo& info = shard.fragments()[i].info;
    const Fragment& f = shard.fragments()[i].fragment;
    const std::vector<uint64_t>& hashes = written.block_hashes[i];
    report.tensors.push_back(to_row(info));
    report.numbers.insert(report.numbers.end(), {f.box.first_row, f.box.num_rows, f.box.first_column, f.box.num_columns,
                                                 f.range.begin, f.range.end, written.offsets[i], std::ssize(hashes)});
    for (const uint64_t hash : hashes) report.numbers.push_back(static_cast<int64_t>(hash));
  }
  return report;
}

/// Joins what all ranks wrote: tensors in order of name, fragments in that of tensors.
class IndexBuilder {
 public:
  explicit IndexBuilder(const RunInfo& info) { index_.info = info; }

  void add(int rank, const Json& tensors, const Numbers& numbers) {
    if (tensors.empty()) return;
    const int64_t file = std::ssize(index_.files);
    index_.files.push_back({shard_file(rank), numbers[0]});
    auto next = numbers.begin() + 1;
    for (const Json& row : tensors) {
      const TensorInfo info = from_row(row);
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

void make_folders(const std::string& path, int num_ranks) {
  for (int rank = 0; rank < num_ranks; rank += kRanksPerFolder) {
    const std::string folder = folder_of(path + "/" + shard_file(rank));
    std::error_code error;
    fs::create_directories(folder, error);
    if (!error) continue;
    throw tensor::StorageError(
        fmt::format("{}: the folder of a new checkpoint cannot be made: {}.\n  Fix: free space there, or set "
                    "checkpoint.dir to a place that you may write.",
                    folder, error.message()));
  }
}

/// Rank 0, after every rank's shard is on disk.
void publish(const std::string& temporary, const std::string& path, const Index& index) {
  for (const ShardFile& file : index.files) sync_folder(folder_of(temporary + "/" + file.path));
  write_index(temporary + "/" + kIndexFile, index);
  write_manifest(temporary, index);
  for (const std::string folder : {"/shards", ""}) sync_folder(temporary + folder);
  publish_checkpoint(temporary, path);
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

}  // namespace

ShardedSave::ShardedSave(const Wire& wire, SaveOptions options) : wire_(wire), options_(std::move(options)) {}

ShardedSave::~ShardedSave() {
  wait();
  if (phase_ != Phase::idle) remove_temporary();
}

void ShardedSave::start(const RunInfo& info, std::vector<LocalFragment> owned) {
  CHECK(phase_ == Phase::idle, "one save at a time");
  info_ = info;
  path_ = options_.dir + "/" + folder_name(info.progress.step);
  wire_.on_root([&] {
    create_checkpoint_folder(options_.dir);
    temporary_ = fmt::format("{}{}{:08x}", path_, kTemporarySuffix, std::random_device()());
    make_folders(temporary_, wire_.size());
  });
  temporary_ = wire_.from_root(temporary_);
  phase_ = Phase::writing;
  if (owned.empty()) return;
  const std::string file = temporary_ + "/" + shard_file(wire_.rank());
  shard_ = std::make_unique<ShardWriter>(file, info_, std::move(owned), options_.staging_bytes);
}

void ShardedSave::before_update() {
  if (shard_) shard_->before_update();
}

bool ShardedSave::is_busy() const {
  return phase_ == Phase::writing ? shard_ && !shard_->is_done() : phase_ == Phase::publishing && is_publishing_;
}

bool ShardedSave::advance() {
  if (phase_ == Phase::writing) {
    begin_publishing();
  } else if (phase_ == Phase::publishing) {
    wait();
    phase_ = Phase::idle;
    wire_.on_root([&] {
      if (publish_error_.empty()) return;
      remove_temporary();
      throw tensor::StorageError(publish_error_);
    });
    return true;
  }
  return false;
}

void ShardedSave::finish() {
  while (phase_ != Phase::idle) {
    wait();
    advance();
  }
}

void ShardedSave::wait() {
  if (shard_) shard_->wait();
  if (publisher_.joinable()) publisher_.join();
}

void ShardedSave::begin_publishing() {
  Report report;
  if (shard_) report = report_of(*shard_);
  shard_.reset();
  const std::vector<std::string> errors = wire_.gather(report.error);
  const std::vector<std::string> tensors = wire_.gather(report.tensors.dump());
  const std::vector<Numbers> numbers = wire_.gather(report.numbers);
  phase_ = Phase::idle;
  wire_.on_root([&] {
    const std::string failure = errors_of(errors);
    if (failure.empty()) return;
    remove_temporary();
    throw tensor::StorageError(failure);
  });
  phase_ = Phase::publishing;
  if (!wire_.is_root()) return;
  IndexBuilder builder(info_);
  for (size_t rank = 0; rank < tensors.size(); ++rank) {
    builder.add(static_cast<int>(rank), Json::parse(tensors[rank]), numbers[rank]);
  }
  is_publishing_ = true;
  publish_error_.clear();
  publisher_ = std::thread([this, index = builder.build()] {
    try {
      publish(temporary_, path_, index);
      point_to_latest(options_.dir, info_.progress.step);
      keep_newest(options_.dir, info_.progress.step, options_.retention);
    } catch (const std::exception& error) {
      publish_error_ = error.what();
    }
    is_publishing_ = false;
  });
}

void ShardedSave::remove_temporary() {
  if (!wire_.is_root() || temporary_.empty()) return;
  std::error_code error;
  fs::remove_all(temporary_, error);
}

std::string save_sharded(const Wire& wire, const std::string& dir, const RunInfo& info,
                         std::span<const LocalFragment> owned) {
  ShardedSave save(wire, {.dir = dir, .retention = {}});
  std::vector<LocalFragment> views;
  for (const LocalFragment& local : owned) views.push_back({local.info, local.fragment, local.values.view()});
  save.start(info, std::move(views));
  save.finish();
  return save.path();
}

}  // namespace checkpoint
