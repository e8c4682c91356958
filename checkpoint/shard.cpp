#include "checkpoint/shard.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "checkpoint/content_hash.h"
#include "checkpoint/directory.h"
#include "checkpoint/format.h"
#include "checkpoint/host_bytes.h"
#include "checkpoint/layout.h"
#include "checkpoint/tables.h"

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

SaveMemory::SaveMemory(int64_t staging_bytes) : staging(staging_bytes) {
  for (int i = 0; i < kNumBuffers; ++i) buffers.emplace_back(kBlockBytes);
}

ShardWriter::ShardWriter(std::string path, const RunInfo& info, std::vector<LocalFragment> fragments,
                         SaveMemory& memory)
    : path_(std::move(path)), fragments_(std::move(fragments)), memory_(memory), own_(describe(info, fragments_)) {
  // The optimizer changes the first ones first: these are written last, and copied where they must be.
  for (size_t i = fragments_.size(); i-- > 0;) {
    const Tensor& values = fragments_[i].values;
    const int64_t most = kBlockBytes / tensor::size_of(values.dtype());
    for (int64_t begin = 0; begin < values.numel(); begin += most) {
      const int64_t count = std::min(most, values.numel() - begin);
      blocks_.push_back({.fragment = i, .begin = begin, .count = count, .copy = nullptr});
    }
  }
  first_copied_ = blocks_.size();
  for (AlignedBuffer& buffer : memory.buffers) free_.push_back(&buffer);
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
  while (first_copied_ > num_claimed_) {  // from the end, towards where the reader is
    Block& block = blocks_[first_copied_ - 1];
    const Tensor values = values_of(block);
    std::byte* const copy = memory_.staging.data() + staged_bytes_;
    if (staged_bytes_ + AlignedBuffer::align_up(values.bytes()) > memory_.staging.bytes()) break;
    staged_bytes_ += AlignedBuffer::align_up(values.bytes());
    --first_copied_;
    lock.unlock();
    try {
      values.device().copy_to_host(values, copy);
    } catch (const std::exception& error) {
      fail(error.what());  // or the reader waits for the copy
      throw;
    }
    lock.lock();
    block.copy = copy;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return all_is_read_ || num_read_ >= first_copied_; });
}

// ---- the reading thread: from memory into buffers

void ShardWriter::run() {
  try {
    create_checkpoint_folder(folder_of(path_));
    TemporaryFile file(path_);
    const std::unique_ptr<TableWriter> tables = lay_out(file);
    std::thread writer([&] { write_blocks(file); });
    try {
      read_blocks();
    } catch (const std::exception& error) {
      fail(error.what());  // which the writer sees
    }
    writer.join();
    if (written_.error.empty()) {
      write_tables(file, *tables);
      file.publish();
      written_.file_bytes = InputFile(path_).bytes();
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
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const std::optional<Full> full = read(i);
    if (!full) break;  // writing failed
    const uint64_t hash = hash_bytes(full->data, full->bytes);
    const std::lock_guard lock(mutex_);
    written_.block_hashes[blocks_[i].fragment].push_back(hash);
    full_.push_back(*full);
    changed_.notify_all();
  }
  const std::lock_guard lock(mutex_);
  all_is_read_ = true;
  changed_.notify_all();
}

std::optional<ShardWriter::Full> ShardWriter::read(size_t i) {
  Block& block = blocks_[i];
  const Tensor values = values_of(block);
  Full full{.data = nullptr, .buffer = nullptr, .offset = offset_of(block), .bytes = values.bytes()};
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    const bool is_ready = i >= first_copied_ ? block.copy != nullptr : !free_.empty();
    return is_ready || !written_.error.empty();
  });
  if (!written_.error.empty()) return {};
  num_claimed_ = i + 1;  // nobody copies it from now on
  if (block.copy == nullptr) {
    full.buffer = free_.back();
    free_.pop_back();
    lock.unlock();
    copy_in_this_thread(values, full.buffer->data());
    lock.lock();
  }
  full.data = block.copy != nullptr ? block.copy : full.buffer->data();
  num_read_ = i + 1;
  changed_.notify_all();
  return full;
}

Tensor ShardWriter::values_of(const Block& block) const {
  return fragments_[block.fragment].values.rows(block.begin, block.begin + block.count);
}

int64_t ShardWriter::offset_of(const Block& block) const {
  return written_.offsets[block.fragment] + block.begin * tensor::size_of(fragments_[block.fragment].values.dtype());
}

// ---- the writing thread: from buffers to disk

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
      direct.write_at(full.offset, full.data, full.bytes);
    } catch (const std::exception& error) {
      return fail(error.what());
    }
    lock.lock();
    if (full.buffer != nullptr) free_.push_back(full.buffer);
    changed_.notify_all();
  }
}

void ShardWriter::fail(const std::string& error) {
  const std::lock_guard lock(mutex_);
  if (written_.error.empty()) written_.error = error;
  changed_.notify_all();
}

}  // namespace checkpoint
