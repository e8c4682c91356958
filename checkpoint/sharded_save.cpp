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

/// What a rank's shards hold, the same in every save of a run: by fragment, tensor, box and range.
std::string contents_of(std::span<const LocalFragment> fragments) {
  Json rows = Json::array();
  for (const LocalFragment& local : fragments) {
    const Fragment& f = local.fragment;
    rows.push_back({to_row(local.info), f.box.first_row, f.box.num_rows, f.box.first_column, f.box.num_columns,
                    f.range.begin, f.range.end});
  }
  return rows.dump();
}

/// Where one save put them: bytes of the file, then for each fragment its offset, its number of blocks and their
/// hashes.
Numbers places_of(const WrittenShard& written) {
  Numbers numbers = {written.file_bytes};
  for (size_t i = 0; i < written.offsets.size(); ++i) {
    const std::vector<uint64_t>& hashes = written.block_hashes[i];
    numbers.insert(numbers.end(), {written.offsets[i], std::ssize(hashes)});
    for (const uint64_t hash : hashes) numbers.push_back(static_cast<int64_t>(hash));
  }
  return numbers;
}

/// Joins what all ranks wrote: tensors in order of name, fragments in that of tensors.
class IndexBuilder {
 public:
  explicit IndexBuilder(const RunInfo& info) { index_.info = info; }

  void add(int rank, const std::string& contents, const Numbers& places) {
    const Json rows = Json::parse(contents);
    if (rows.empty()) return;
    const int64_t file = std::ssize(index_.files);
    index_.files.push_back({shard_file(rank), places[0]});
    auto next = places.begin() + 1;
    for (const Json& row : rows) {
      const TensorInfo info = from_row(row[0]);
      StoredFragment stored{.fragment = {.box = {row[1], row[2], row[3], row[4]}, .range = {row[5], row[6]}},
                            .file = file,
                            .offset = *next++,
                            .first_block = std::ssize(index_.block_hashes)};
      const int64_t num_hashes = *next++;
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
  return more > 0 ? text + fmt::format("\n  {} more {} could not write either.", more, more == 1 ? "rank" : "ranks")
                  : text;
}

}  // namespace

ShardedSave::ShardedSave(const Wire& wire, SaveOptions options) : wire_(wire), options_(std::move(options)) {}

ShardedSave::~ShardedSave() {
  wait();
  if (phase_ != Phase::idle) remove_temporary();
}

void ShardedSave::start(const RunInfo& info, std::vector<LocalFragment> owned) {
  CHECK(phase_ == Phase::idle, "one save at a time");
  if (nonce_.empty()) {
    nonce_ = wire_.from_root(fmt::format("{:08x}", std::random_device()()));
    memory_ = std::make_unique<SaveMemory>(options_.staging_bytes);
  }
  info_ = info;
  path_ = options_.dir + "/" + folder_name(info.progress.step);
  temporary_ = fmt::format("{}{}{}-{:04d}", path_, kTemporarySuffix, nonce_, ++num_started_);
  phase_ = Phase::writing;
  if (owned.empty()) return;
  const std::string file = temporary_ + "/" + shard_file(wire_.rank());
  shard_ = std::make_unique<ShardWriter>(file, info_, std::move(owned), *memory_);
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
  std::string error;
  std::string contents = contents_of({});
  Numbers places = {0};
  if (shard_) {
    const WrittenShard& written = shard_->wait();
    error = written.error;
    contents = contents_of(shard_->fragments());
    if (error.empty()) places = places_of(written);
  }
  shard_.reset();
  phase_ = Phase::idle;
  if (wire_.sum(error.empty() ? 0 : 1) > 0) {
    const std::vector<std::string> errors = wire_.gather(error);
    wire_.on_root([&] {
      remove_temporary();
      throw tensor::StorageError(errors_of(errors));
    });
  }
  // No more than what rank 0 does not know yet.
  std::vector<std::string> all_contents = wire_.gather(contents == told_contents_ ? "" : contents);
  std::vector<Numbers> all_places = wire_.gather(places);
  told_contents_ = std::move(contents);
  phase_ = Phase::publishing;
  if (wire_.is_root()) publish_in_background(std::move(all_contents), std::move(all_places));
}

void ShardedSave::publish_in_background(std::vector<std::string> contents, std::vector<Numbers> places) {
  contents_.resize(contents.size());
  for (size_t rank = 0; rank < contents.size(); ++rank) {
    if (!contents[rank].empty()) contents_[rank] = std::move(contents[rank]);
  }
  is_publishing_ = true;
  publish_error_.clear();
  warning_.clear();
  publisher_ = std::thread([this, places = std::move(places)] {
    try {
      IndexBuilder builder(info_);
      for (size_t rank = 0; rank < places.size(); ++rank) {
        builder.add(static_cast<int>(rank), contents_[rank], places[rank]);
      }
      publish(temporary_, path_, builder.build());
      time_of_publication_ = std::chrono::steady_clock::now();
      tidy();
    } catch (const std::exception& error) {
      publish_error_ = error.what();
    }
    is_publishing_ = false;
  });
}

/// The new checkpoint is there, whatever happens here.
void ShardedSave::tidy() {
  try {
    point_to_latest(options_.dir, info_.progress.step);
    keep_newest(options_.dir, info_.progress.step, options_.retention);
  } catch (const tensor::StorageError& error) {
    warning_ = error.what();
  }
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
