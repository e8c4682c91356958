#include "checkpoint/catalog.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "checkpoint/format.h"
#include "checkpoint/hdf5.h"

namespace checkpoint {
namespace {

using hdf5::Handle;

struct Link {
  std::string name;
  bool is_hard = false;
};

herr_t collect_link(hid_t, const char* name, const H5L_info_t* info, void* links) {
  auto* list = static_cast<std::vector<Link>*>(links);
  if (list->size() >= format::kMaxTensors) return -1;
  list->push_back({name, info->type == H5L_TYPE_HARD});
  return 0;
}

class CatalogReader {
 public:
  explicit CatalogReader(const InputFile& file) : file_(file) {}

  Catalog read() {
    hdf5::prepare_library();
    const Handle access = hdf5::file_access();
    const Handle opened(H5Fopen(file_.path().c_str(), H5F_ACC_RDONLY, access.id()), H5Fclose);
    if (!opened) damaged(fmt::format("HDF5 cannot open it ({})", hdf5::last_error()));
    const Handle root(H5Gopen2(opened.id(), "/", H5P_DEFAULT), H5Gclose);
    require(static_cast<bool>(root), "its root group");
    const uint64_t content_hash = read_run(root.id());
    walk(root.id(), "", 1);
    std::sort(catalog_.tensors.begin(), catalog_.tensors.end(),
              [](const auto& a, const auto& b) { return a.hashed.info.name < b.hashed.info.name; });
    check_content(content_hash);
    return std::move(catalog_);
  }

 private:
  [[noreturn]] void damaged(const std::string& why) const {
    throw DamagedError(fmt::format("{}: this checkpoint is damaged, or no checkpoint: {}.", file_.path(), why));
  }
  void require(bool is_ok, const std::string& what) const {
    if (!is_ok) damaged(fmt::format("{} cannot be read ({})", what, hdf5::last_error()));
  }

  uint64_t read_run(hid_t root);
  void check_content(uint64_t content_hash) const;
  void walk(hid_t group, const std::string& prefix, int depth);
  void read_dataset(hid_t dataset, const std::string& name);
  void read_config_text(hid_t dataset, hid_t type);
  tensor::Shape read_shape(hid_t dataset, const std::string& name) const;
  int64_t checked_bytes(const StoredTensor& tensor) const;
  int64_t checked_offset(hid_t dataset, const std::string& name, int64_t bytes) const;
  void require_plain_storage(hid_t dataset, const std::string& name) const;

  void read_attribute(hid_t object, const char* name, hid_t type, void* value) const;
  uint64_t read_unsigned(hid_t object, const char* name) const;
  int64_t read_signed(hid_t object, const char* name) const;
  std::string read_text(hid_t object, const char* name) const;

  const InputFile& file_;
  Catalog catalog_;
};

uint64_t CatalogReader::read_run(hid_t root) {
  if (read_text(root, format::kFormat) != format::kFormatName) damaged("its format is another one");
  const uint64_t version = read_unsigned(root, format::kFormatVersion);
  if (version != format::kVersion) {
    throw tensor::CheckpointError(
        fmt::format("{}: this checkpoint has format version {}; this program reads version {}.\n"
                    "  Fix: use the program that wrote it.",
                    file_.path(), version, format::kVersion));
  }
  Progress& progress = catalog_.info.progress;
  progress.step = read_signed(root, format::kStep);
  progress.samples = read_signed(root, format::kSamples);
  progress.tokens = read_signed(root, format::kTokens);
  progress.seed = read_unsigned(root, format::kSeed);
  catalog_.info.build_id = read_text(root, format::kBuildId);
  return read_unsigned(root, format::kContentHash);
}

void CatalogReader::check_content(uint64_t content_hash) const {
  std::vector<HashedTensor> hashed;
  std::transform(catalog_.tensors.begin(), catalog_.tensors.end(), std::back_inserter(hashed),
                 [](const StoredTensor& tensor) { return tensor.hashed; });
  const uint64_t found = hash_contents(catalog_.info, hashed);
  if (found != content_hash) {
    damaged(fmt::format("its description has the hash {:016x}, and was written with {:016x}", found, content_hash));
  }
}

void CatalogReader::walk(hid_t group, const std::string& prefix, int depth) {
  if (depth > format::kMaxDepth) damaged(fmt::format("groups lie more than {} deep", format::kMaxDepth));
  std::vector<Link> links;
  hsize_t index = 0;
  require(H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, &index, collect_link, &links) >= 0, "a list of names");
  for (const Link& link : links) {
    const std::string name = prefix + link.name;
    if (name.size() > format::kMaxNameBytes) damaged("a name is too long");
    if (!link.is_hard) damaged("it has a soft or external link, which no checkpoint has");
    const Handle object(H5Oopen(group, link.name.c_str(), H5P_DEFAULT), H5Oclose);
    require(static_cast<bool>(object), "an object");
    switch (H5Iget_type(object.id())) {
      case H5I_GROUP:
        walk(object.id(), name + "/", depth + 1);
        break;
      case H5I_DATASET:
        read_dataset(object.id(), name);
        break;
      default:
        damaged("it has an object that is neither group nor dataset");
    }
  }
}

void CatalogReader::require_plain_storage(hid_t dataset, const std::string& name) const {
  const Handle creation(H5Dget_create_plist(dataset), H5Pclose);
  require(static_cast<bool>(creation), name);
  if (H5Pget_layout(creation.id()) != H5D_CONTIGUOUS || H5Pget_external_count(creation.id()) != 0 ||
      H5Pget_nfilters(creation.id()) != 0) {
    damaged("a dataset is not stored as one plain piece inside the file");
  }
}

void CatalogReader::read_dataset(hid_t dataset, const std::string& name) {
  require_plain_storage(dataset, name);
  const Handle type(H5Dget_type(dataset), H5Tclose);
  require(static_cast<bool>(type), "a type");
  if (name == format::kConfigText) return read_config_text(dataset, type.id());

  if (catalog_.tensors.size() >= format::kMaxTensors) damaged("it has too many tensors");
  StoredTensor tensor;
  tensor.hashed.info.name = name;
  if (!hdf5::find_dtype(type.id(), tensor.hashed.info.dtype)) damaged("a dataset has a type that no tensor has");
  tensor.hashed.info.shape = read_shape(dataset, name);
  tensor.hashed.hash = read_unsigned(dataset, format::kTensorHash);
  tensor.offset = checked_offset(dataset, name, checked_bytes(tensor));
  catalog_.tensors.push_back(std::move(tensor));
}

void CatalogReader::read_config_text(hid_t dataset, hid_t type) {
  const size_t size = H5Tget_size(type);
  if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0 || size > format::kMaxTextBytes) {
    damaged("the config inside is no text");
  }
  std::string text(size, '\0');
  file_.read_at(checked_offset(dataset, format::kConfigText, static_cast<int64_t>(size)), text.data(),
                static_cast<int64_t>(size));
  catalog_.info.config_text = text.substr(0, text.find('\0'));
}

tensor::Shape CatalogReader::read_shape(hid_t dataset, const std::string& name) const {
  const Handle space(H5Dget_space(dataset), H5Sclose);
  require(space && H5Sis_simple(space.id()) > 0, name);
  const int num_dims = H5Sget_simple_extent_ndims(space.id());
  if (num_dims < 1 || num_dims > tensor::Shape::kMaxDims) damaged(fmt::format("a dataset has {} dims", num_dims));
  std::array<hsize_t, tensor::Shape::kMaxDims> sizes{};
  require(H5Sget_simple_extent_dims(space.id(), sizes.data(), nullptr) == num_dims, name);
  for (const hsize_t size : sizes) {
    if (size > static_cast<hsize_t>(INT64_MAX)) damaged("a dataset has an impossible size");
  }
  const auto size = [&](size_t dim) { return static_cast<int64_t>(sizes[dim]); };
  switch (num_dims) {
    case 1:
      return {size(0)};
    case 2:
      return {size(0), size(1)};
    case 3:
      return {size(0), size(1), size(2)};
    default:
      return {size(0), size(1), size(2), size(3)};
  }
}

int64_t CatalogReader::checked_bytes(const StoredTensor& tensor) const {
  const tensor::Shape& shape = tensor.hashed.info.shape;
  int64_t bytes = tensor::size_of(tensor.hashed.info.dtype);
  for (int dim = 0; dim < shape.num_dims(); ++dim) {
    // a zero anywhere makes the tensor empty, however large the other sizes are
    if (shape[dim] == 0) return 0;
  }
  for (int dim = 0; dim < shape.num_dims(); ++dim) {
    if (__builtin_mul_overflow(bytes, shape[dim], &bytes)) damaged("a dataset has more bytes than any file");
  }
  return bytes;
}

int64_t CatalogReader::checked_offset(hid_t dataset, const std::string& name, int64_t bytes) const {
  if (bytes == 0) return 0;
  const haddr_t offset = H5Dget_offset(dataset);
  require(offset != HADDR_UNDEF, name);
  if (bytes > file_.bytes() || offset > static_cast<haddr_t>(file_.bytes() - bytes)) {
    damaged(fmt::format("{} bytes at offset {} lie beyond its end at {}", bytes, offset, file_.bytes()));
  }
  return static_cast<int64_t>(offset);
}

void CatalogReader::read_attribute(hid_t object, const char* name, hid_t type, void* value) const {
  const Handle attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
  require(static_cast<bool>(attribute), fmt::format("attribute \"{}\"", name));
  const Handle stored(H5Aget_type(attribute.id()), H5Tclose);
  const Handle space(H5Aget_space(attribute.id()), H5Sclose);
  require(stored && space, name);
  if (H5Tequal(stored.id(), type) <= 0 || H5Sget_simple_extent_type(space.id()) != H5S_SCALAR) {
    damaged(fmt::format("attribute \"{}\" has another type", name));
  }
  require(H5Aread(attribute.id(), type, value) >= 0, name);
}

uint64_t CatalogReader::read_unsigned(hid_t object, const char* name) const {
  uint64_t value = 0;
  read_attribute(object, name, H5T_STD_U64LE, &value);
  return value;
}

int64_t CatalogReader::read_signed(hid_t object, const char* name) const {
  int64_t value = 0;
  read_attribute(object, name, H5T_STD_I64LE, &value);
  return value;
}

std::string CatalogReader::read_text(hid_t object, const char* name) const {
  const Handle attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
  require(static_cast<bool>(attribute), fmt::format("attribute \"{}\"", name));
  const Handle stored(H5Aget_type(attribute.id()), H5Tclose);
  require(static_cast<bool>(stored), name);
  const size_t size = H5Tget_size(stored.id());
  if (size > format::kMaxBuildIdBytes) damaged(fmt::format("attribute \"{}\" is too long", name));
  std::string text(size, '\0');
  const Handle type = hdf5::text_type(std::max<size_t>(size, 1));
  read_attribute(object, name, type.id(), text.data());
  return text.substr(0, text.find('\0'));
}

}  // namespace

Catalog read_catalog(const InputFile& file) { return CatalogReader(file).read(); }

}  // namespace checkpoint
