#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string_view>
#include <vector>

#include "checkpoint/content_hash.h"
#include "checkpoint/file.h"
#include "checkpoint/format.h"
#include "checkpoint/layout.h"
#include "checkpoint/single_file.h"
#include "tensor/device.h"

namespace checkpoint {
namespace {

constexpr int64_t kMetadataBytes = 1 << 20;  // bound on what HDF5 adds: once, and per tensor
constexpr int64_t kMetadataBytesPerTensor = 8 << 10;

/// The bytes of a tensor in host memory: the tensor's own where that is possible, else a copy.
class HostBytes {
 public:
  explicit HostBytes(const tensor::Tensor& tensor) : data_(tensor.raw()) {
    if (tensor.device().kind() == tensor::DeviceKind::cpu || tensor.bytes() == 0) return;
    copy_.resize(static_cast<size_t>(tensor.bytes()));
    tensor.device().copy_to_host(tensor, copy_.data());
    data_ = copy_.data();
  }
  const void* data() const { return data_; }

 private:
  const void* data_;
  std::vector<std::byte> copy_;
};

/// A name is a path of at most kMaxDepth parts, none empty, ".", ".." or the config's.
bool is_valid_name(std::string_view name) {
  if (name.empty() || name.size() > format::kMaxNameBytes || name == format::kConfigText) return false;
  int depth = 0;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || ++depth > format::kMaxDepth) return false;
    begin = end + 1;
  }
  return true;
}

std::vector<const NamedTensor*> sorted_by_name(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> sorted;
  for (const NamedTensor& named : tensors) {
    CHECK(is_valid_name(named.name), "\"{}\" cannot be the name of a tensor in a checkpoint", named.name);
    CHECK(named.tensor != nullptr && *named.tensor, "\"{}\" has a tensor to save", named.name);
    CHECK(named.tensor->is_contiguous(), "\"{}\" is saved as one piece", named.name);
    sorted.push_back(&named);
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  const auto twice =
      std::adjacent_find(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->name == b->name; });
  CHECK(twice == sorted.end(), "\"{}\" is saved twice", (*twice)->name);
  return sorted;
}

std::vector<HashedTensor> hash_all(const std::vector<const NamedTensor*>& tensors) {
  std::vector<HashedTensor> hashed;
  for (const NamedTensor* named : tensors) {
    const tensor::Tensor& tensor = *named->tensor;
    hashed.push_back(
        {{named->name, tensor.dtype(), tensor.shape()}, hash_bytes(HostBytes(tensor).data(), tensor.bytes())});
  }
  return hashed;
}

}  // namespace

int64_t file_bytes(const RunInfo& info, std::span<const NamedTensor> tensors) {
  return std::accumulate(
      tensors.begin(), tensors.end(),
      kMetadataBytes + static_cast<int64_t>(info.config_text.size() + info.build_id.size()),
      [](int64_t sum, const NamedTensor& named) { return sum + named.tensor->bytes() + kMetadataBytesPerTensor; });
}

void save(const std::string& path, const RunInfo& info, std::span<const NamedTensor> tensors) {
  CHECK(info.config_text.size() <= format::kMaxTextBytes, "the config of {} bytes fits", info.config_text.size());
  CHECK(info.config_text.find('\0') == std::string::npos, "the config is text");
  CHECK(info.build_id.size() <= format::kMaxBuildIdBytes, "the build id of {} bytes fits", info.build_id.size());
  const std::vector<const NamedTensor*> sorted = sorted_by_name(tensors);
  const std::vector<HashedTensor> hashed = hash_all(sorted);
  TemporaryFile file(path);
  file.reserve(file_bytes(info, tensors));  // before HDF5 writes: it recovers badly from a full disk

  Layout layout(file);
  layout.describe_run(info, format::kFormatName, hash_contents(info, hashed));
  const int64_t config_offset = layout.add_text(format::kConfigText, info.config_text);
  std::vector<int64_t> offsets;
  for (const HashedTensor& tensor : hashed) offsets.push_back(layout.add_tensor(tensor));
  layout.close();

  // an empty text has one byte, NUL
  file.write_at(config_offset, info.config_text.c_str(), std::max<int64_t>(std::ssize(info.config_text), 1));
  for (size_t i = 0; i < sorted.size(); ++i) {
    file.write_at(offsets[i], HostBytes(*sorted[i]->tensor).data(), sorted[i]->tensor->bytes());
  }
  file.publish();
}

}  // namespace checkpoint
