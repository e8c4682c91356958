#include "checkpoint/shard.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "checkpoint/content_hash.h"
#include "checkpoint/format.h"
#include "checkpoint/layout.h"
#include "checkpoint/tables.h"
#include "tensor/device.h"

namespace checkpoint {

using tensor::Tensor;

namespace {

constexpr int64_t kMetadataBytes = 1 << 20;
constexpr int64_t kMetadataBytesPerFragment = 8 << 10;
constexpr int kNumBuffers = 3;  // one is read into, one written, one between

/// What a shard of these will say of itself: all but offsets and hashes.
Index describe(const RunInfo& info, std::span<const LocalFragment> fragments) {
  Index index{.info = info, .tensors = {}, .files = {}, .fragments = {}, .block_hashes = {}};
  std::map<std::string, int64_t> places;
  std::map<std::string, const TensorInfo*> infos;
  for (const LocalFragment& local : fragments) infos[local.info.name] = &local.info;
  for (const auto& [name, tensor] : infos) {
    places[name] = std::ssize(index.tensors);
    index.tensors.push_back(*tensor);
  }
  for (const LocalFragment& local : fragments) {
    StoredFragment stored{.fragment = local.fragment, .first_block = std::ssize(index.block_hashes)};
    stored.fragment.tensor = places.at(local.info.name);
    index.block_hashes.resize(index.block_hashes.size() + static_cast<size_t>(num_blocks(index, stored.fragment)));
    index.fragments.push_back(stored);
  }
  return index;
}

}  // namespace

std::string dataset_name(const TensorInfo& info, const Fragment& f) {
  const bool has_all_columns = f.box.num_columns == whole_box(info.shape).num_columns;
  const int64_t begin = f.range.begin + (has_all_columns ? f.box.first_row * f.box.num_columns : 0);
  const std::string name = fmt::format("{}@{}", info.name, begin);
  if (has_all_columns) return name;
  return fmt::format("{} columns {}:{}", name, f.box.first_column, f.box.first_column + f.box.num_columns);
}

int64_t shard_bytes(std::span<const LocalFragment> fragments) {
  int64_t bytes = kMetadataBytes;
  for (const LocalFragment& local : fragments) bytes += local.values.bytes() + kMetadataBytesPerFragment;
  return bytes;
}

ShardWriter::ShardWriter(std::string path, const RunInfo& info, std::vector<LocalFragment> fragments,
                         int64_t staging_bytes)
    : path_(std::move(path)),
      fragments_(std::move(fragments)),
      staging_bytes_(staging_bytes),
      own_(describe(info, fragments_)) {
  // The optimizer changes the first ones first: these are written last, and copied where they must be.
  for (size_t i = fragments_.size(); i-- > 0;) {
    const Tensor& values = fragments_[i].values;
    const int64_t most = kBlockBytes / tensor::size_of(values.dtype());
    for (int64_t begin = 0; begin < values.numel(); begin += most) {
      blocks_.push_back({.fragment = i, .begin = begin, .count = std::min(most, values.numel() - begin), .copy = {}});
    }
  }
  written_.block_hashes.resize(fragments_.size());
  thread_ = std::thread([this] { run(); });
}

ShardWriter::~ShardWriter() {
  if (thread_.joinable()) thread_.join();
}

bool ShardWriter::is_done() const {
  const std::lock_guard lock(mutex_);
  return is_done_;
}

const WrittenShard& ShardWriter::wait() {
  if (thread_.joinable()) thread_.join();
  return written_;
}

void ShardWriter::before_update() {
  std::unique_lock lock(mutex_);
  size_t first_copied = blocks_.size();
  while (first_copied > num_claimed_) {  // from the end, towards where the reader is
    Block& block = blocks_[first_copied - 1];
    if (block.copy.empty()) {
      if (bytes_of(block) > staging_bytes_) break;  // the rest is waited for
      staging_bytes_ -= bytes_of(block);
      block.copy.resize(static_cast<size_t>(bytes_of(block)));
      const Tensor& values = fragments_[block.fragment].values;
      values.device().copy_to_host(values.rows(block.begin, block.begin + block.count), block.copy.data());
    }
    --first_copied;
  }
  changed_.wait(lock, [&] { return all_is_read_ || num_read_ >= first_copied; });
}

// ---- the reading thread: from memory into buffers
// ---------------------------------------------------------------------

void ShardWriter::run() {
  try {
    TemporaryFile file(path_);
    const std::unique_ptr<TableWriter> tables = lay_out(file);
    std::thread writer([&] { write_blocks(file); });
    read_blocks();
    writer.join();
    if (written_.error.empty()) {
      write_tables(file, *tables);
      file.publish();
      struct stat status {};
      if (::stat(path_.c_str(), &status) == 0) written_.file_bytes = status.st_size;
    }
  } catch (const std::exception& error) {
    fail(error.what());
  }
  const std::lock_guard lock(mutex_);
  all_is_read_ = is_done_ = true;
  changed_.notify_all();
}

std::unique_ptr<TableWriter> ShardWriter::lay_out(const TemporaryFile& file) {
  file.reserve(shard_bytes(fragments_));
  Layout layout(file);
  layout.describe_run(own_.info, format::kShardFormatName, 0);
  for (const LocalFragment& local : fragments_) {
    CHECK(local.values.is_contiguous() && local.values.numel() == local.fragment.numel(), "{} has its {} values",
          local.info.name, local.fragment.numel());
    written_.offsets.push_back(
        layout.add_values(dataset_name(local.info, local.fragment), local.info.dtype, local.fragment.numel()));
  }
  auto tables = std::make_unique<TableWriter>(layout, own_);
  layout.close();
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < kNumBuffers; ++i) {
    buffers_.push_back(std::make_unique<AlignedBuffer>(kBlockBytes));
    free_.push_back(buffers_.back().get());
  }
  return tables;
}

void ShardWriter::write_tables(const TemporaryFile& file, const TableWriter& tables) {
  for (size_t i = 0; i < fragments_.size(); ++i) {
    StoredFragment& stored = own_.fragments[i];
    stored.offset = written_.offsets[i];
    std::ranges::copy(written_.block_hashes[i], own_.block_hashes.begin() + stored.first_block);
  }
  tables.write(file, own_);
}

void ShardWriter::read_blocks() {
  for (Block& block : blocks_) {
    AlignedBuffer* const buffer = claim_buffer();
    if (buffer == nullptr) break;  // writing failed
    read(block, *buffer);
  }
  const std::lock_guard lock(mutex_);
  all_is_read_ = true;
  changed_.notify_all();
}

/// A buffer for the next block, which nobody copies from now on.
AlignedBuffer* ShardWriter::claim_buffer() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !free_.empty() || !written_.error.empty(); });
  if (!written_.error.empty()) return nullptr;
  AlignedBuffer* const buffer = free_.back();
  free_.pop_back();
  ++num_claimed_;
  return buffer;
}

void ShardWriter::read(Block& block, AlignedBuffer& buffer) {
  const int64_t bytes = bytes_of(block);
  if (block.copy.empty()) {
    const Tensor& values = fragments_[block.fragment].values;
    values.device().copy_to_host(values.rows(block.begin, block.begin + block.count), buffer.data());
  } else {
    std::memcpy(buffer.data(), block.copy.data(), static_cast<size_t>(bytes));
  }
  {
    const std::lock_guard lock(mutex_);
    if (!block.copy.empty()) staging_bytes_ += bytes;
    block.copy = {};
    ++num_read_;
    changed_.notify_all();
  }
  const uint64_t hash = hash_bytes(buffer.data(), bytes);
  const std::lock_guard lock(mutex_);
  written_.block_hashes[block.fragment].push_back(hash);
  full_.push_back({&buffer, offset_of(block), bytes});
  changed_.notify_all();
}

int64_t ShardWriter::bytes_of(const Block& block) const {
  return block.count * tensor::size_of(fragments_[block.fragment].values.dtype());
}

int64_t ShardWriter::offset_of(const Block& block) const {
  return written_.offsets[block.fragment] + block.begin * tensor::size_of(fragments_[block.fragment].values.dtype());
}

// ---- the writing thread: from buffers to disk
// ---------------------------------------------------------------------------

void ShardWriter::write_blocks(const TemporaryFile& file) {
  DirectFile direct(file);
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !full_.empty() || all_is_read_ || !written_.error.empty(); });
    if (full_.empty()) return;
    const Full full = full_.front();
    full_.pop_front();
    lock.unlock();
    try {
      direct.write_at(full.offset, full.buffer->data(), full.bytes);
    } catch (const tensor::StorageError& error) {
      return fail(error.what());
    }
    lock.lock();
    free_.push_back(full.buffer);
    changed_.notify_all();
  }
}

void ShardWriter::fail(const std::string& error) {
  const std::lock_guard lock(mutex_);
  if (written_.error.empty()) written_.error = error;
  changed_.notify_all();
}

}  // namespace checkpoint
