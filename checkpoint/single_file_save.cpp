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

int64_t bytes_of_tensor(const TensorInfo& info) { return info.shape.numel() * tensor::size_of(info.dtype); }

int64_t room_for(const RunInfo& info, const std::vector<HashedTensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(),
                         kMetadataBytes + static_cast<int64_t>(info.config_text.size() + info.build_id.size()),
                         [](int64_t sum, const HashedTensor& tensor) {
                           return sum + bytes_of_tensor(tensor.info) + kMetadataBytesPerTensor;
                         });
}

/// Lays the file out, then writes what bytes_of(i) gives for every tensor.
template <class BytesOf>
void write_file(const std::string& path, const RunInfo& info, const std::vector<HashedTensor>& tensors,
                const BytesOf& bytes_of) {
  CHECK(info.config_text.size() <= format::kMaxTextBytes, "the config of {} bytes fits", info.config_text.size());
  CHECK(info.config_text.find('\0') == std::string::npos, "the config is text");
  CHECK(info.build_id.size() <= format::kMaxBuildIdBytes, "the build id of {} bytes fits", info.build_id.size());
  TemporaryFile file(path);
  file.reserve(room_for(info, tensors));  // before HDF5 writes: it recovers badly from a full disk

  Layout layout(file);
  layout.describe_run(info, format::kFormatName, hash_contents(info, tensors));
  const int64_t config_offset = layout.add_text(format::kConfigText, info.config_text);
  std::vector<int64_t> offsets;
  for (const HashedTensor& tensor : tensors) offsets.push_back(layout.add_tensor(tensor));
  layout.close();

  // an empty text has one byte, NUL
  file.write_at(config_offset, info.config_text.c_str(), std::max<int64_t>(std::ssize(info.config_text), 1));
  for (size_t i = 0; i < tensors.size(); ++i) {
    file.write_at(offsets[i], bytes_of(i).data(), bytes_of_tensor(tensors[i].info));
  }
  file.publish();
}

}  // namespace

int64_t file_bytes(const RunInfo& info, std::span<const NamedTensor> tensors) {
  std::vector<HashedTensor> described;
  for (const NamedTensor& named : tensors) {
    described.push_back({{named.name, named.tensor->dtype(), named.tensor->shape()}, 0});
  }
  return room_for(info, described);
}

void save(const std::string& path, const RunInfo& info, std::span<const NamedTensor> tensors) {
  const std::vector<const NamedTensor*> sorted = sorted_by_name(tensors);
  write_file(path, info, hash_all(sorted), [&](size_t i) { return HostBytes(*sorted[i]->tensor); });
}

void save(const std::string& path, const RunInfo& info, std::span<const TensorInfo> tensors, const ReadTensor& read) {
  std::vector<HashedTensor> hashed;
  for (size_t i = 0; i < tensors.size(); ++i) {
    CHECK(i == 0 || tensors[i - 1].name < tensors[i].name, "the tensors come in order of name");
    const std::vector<std::byte> bytes = read(i);
    CHECK(std::ssize(bytes) == bytes_of_tensor(tensors[i]), "\"{}\" has all its bytes", tensors[i].name);
    hashed.push_back({tensors[i], hash_bytes(bytes.data(), std::ssize(bytes))});
  }
  write_file(path, info, hashed, read);
}

}  // namespace checkpoint
