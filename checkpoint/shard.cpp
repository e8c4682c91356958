#include "checkpoint/shard.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>

#include "checkpoint/content_hash.h"
#include "checkpoint/layout.h"
#include "tensor/device.h"

namespace checkpoint {

using tensor::Tensor;

namespace {

constexpr int64_t kMetadataBytes = 1 << 20;
constexpr int64_t kMetadataBytesPerFragment = 8 << 10;

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

ShardWriter::ShardWriter(const std::string& path, std::span<const LocalFragment> fragments)
    : fragments_(fragments), path_(path), file_(path), block_hashes_(fragments.size()) {
  file_.reserve(shard_bytes(fragments));
  Layout layout(file_);
  for (const LocalFragment& local : fragments) {
    CHECK(local.values.is_contiguous() && local.values.numel() == local.fragment.numel(), "{} has its {} values",
          local.info.name, local.fragment.numel());
    offsets_.push_back(layout.add_values(dataset_name(local.info, local.fragment), local.info.dtype, local.fragment.numel()));
  }
  layout.close();
}

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
  file_.publish();
  struct stat status {};
  return ::stat(path_.c_str(), &status) == 0 ? status.st_size : 0;
}

}  // namespace checkpoint
