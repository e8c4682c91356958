#include "checkpoint/shard.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
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

ShardWriter::ShardWriter(const std::string& path, const RunInfo& info, std::span<const LocalFragment> fragments)
    : fragments_(fragments),
      path_(path),
      file_(path),
      own_(describe(info, fragments)),
      block_hashes_(fragments.size()) {
  file_.reserve(shard_bytes(fragments));
  Layout layout(file_);
  layout.describe_run(info, format::kShardFormatName, 0);
  for (const LocalFragment& local : fragments) {
    CHECK(local.values.is_contiguous() && local.values.numel() == local.fragment.numel(), "{} has its {} values",
          local.info.name, local.fragment.numel());
    offsets_.push_back(
        layout.add_values(dataset_name(local.info, local.fragment), local.info.dtype, local.fragment.numel()));
  }
  tables_ = std::make_unique<TableWriter>(layout, own_);
  layout.close();
}

ShardWriter::~ShardWriter() = default;

void ShardWriter::write(size_t fragment) {
  const Tensor& values = fragments_[fragment].values;
  const bool is_in_place = values.device().kind() == tensor::DeviceKind::cpu;
  const int64_t block_elements = kBlockBytes / tensor::size_of(values.dtype());
  std::vector<std::byte> staging(is_in_place ? 0 : static_cast<size_t>(std::min(kBlockBytes, values.bytes())));
  for (int64_t begin = 0; begin < values.numel(); begin += block_elements) {
    const Tensor block = values.rows(begin, std::min(values.numel(), begin + block_elements));
    const void* host = block.raw();
    if (!is_in_place) {
      values.device().copy_to_host(block, staging.data());
      host = staging.data();
    }
    block_hashes_[fragment].push_back(hash_bytes(host, block.bytes()));
    file_.write_at(offsets_[fragment] + begin * tensor::size_of(values.dtype()), host, block.bytes());
  }
}

int64_t ShardWriter::publish() {
  for (size_t i = 0; i < fragments_.size(); ++i) {
    StoredFragment& stored = own_.fragments[i];
    stored.offset = offsets_[i];
    std::copy(block_hashes_[i].begin(), block_hashes_[i].end(), own_.block_hashes.begin() + stored.first_block);
  }
  tables_->write(file_, own_);
  file_.publish();
  struct stat status {};
  return ::stat(path_.c_str(), &status) == 0 ? status.st_size : 0;
}

}  // namespace checkpoint
