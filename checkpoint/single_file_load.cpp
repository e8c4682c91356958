#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>
#include <vector>

#include "checkpoint/catalog.h"
#include "checkpoint/difference.h"
#include "checkpoint/single_file.h"
#include "tensor/device.h"

namespace checkpoint {
namespace {

void load_tensor(const InputFile& file, const StoredTensor& stored, tensor::Tensor& tensor) {
  const bool is_in_place = tensor.device().kind() == tensor::DeviceKind::cpu || tensor.bytes() == 0;
  std::vector<std::byte> staging(is_in_place ? 0 : static_cast<size_t>(tensor.bytes()));
  void* host = is_in_place ? tensor.raw() : staging.data();

  file.read_at(stored.offset, host, tensor.bytes());
  const uint64_t found = hash_bytes(host, tensor.bytes());
  if (found != stored.hashed.hash) {
    throw DamagedError(
        fmt::format("{}: this checkpoint is damaged: \"{}\" {} has the hash {:016x}, and was written "
                    "with {:016x}.",
                    file.path(), stored.hashed.info.name, stored.hashed.info.shape.str(), found, stored.hashed.hash));
  }
  if (!is_in_place) tensor.device().copy_from_host(host, tensor);
}

std::vector<TensorInfo> infos_of(const Catalog& catalog) {
  std::vector<TensorInfo> infos;
  for (const StoredTensor& stored : catalog.tensors) infos.push_back(stored.hashed.info);
  return infos;
}

}  // namespace

RunInfo load(const std::string& path, std::span<const NamedTensor> tensors) {
  const InputFile file(path);
  const Catalog catalog = read_catalog(file);
  require_same_tensors(path, infos_of(catalog), tensors);

  std::map<std::string_view, const StoredTensor*> by_name;
  for (const StoredTensor& stored : catalog.tensors) by_name[stored.hashed.info.name] = &stored;
  for (const NamedTensor& wanted : tensors) {
    CHECK(wanted.tensor->is_contiguous(), "\"{}\" is loaded as one piece", wanted.name);
    load_tensor(file, *by_name.at(wanted.name), *wanted.tensor);
  }
  return catalog.info;
}

Contents inspect(const std::string& path) {
  Catalog catalog = read_catalog(InputFile(path));
  std::vector<TensorInfo> infos = infos_of(catalog);
  return {std::move(catalog.info), std::move(infos)};
}

}  // namespace checkpoint
