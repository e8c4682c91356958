#include "checkpoint/catalog.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "checkpoint/foreign_file.h"
#include "checkpoint/format.h"

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
    const ForeignFile::Run run = file_.read_run(format::kFormatName);
    catalog_.info = run.info;
    walk(file_.root(), "", 1);
    std::sort(catalog_.tensors.begin(), catalog_.tensors.end(),
              [](const auto& a, const auto& b) { return a.hashed.info.name < b.hashed.info.name; });
    check_content(run.content_hash);
    return std::move(catalog_);
  }

 private:
  [[noreturn]] void damaged(const std::string& why) const { file_.damaged(why); }
  void require(bool is_ok, const std::string& what) const { file_.require(is_ok, what); }

  void check_content(uint64_t content_hash) const;
  void walk(hid_t group, const std::string& prefix, int depth);
  void read_dataset(hid_t dataset, const std::string& name);
  tensor::Shape read_shape(hid_t dataset, const std::string& name) const;
  int64_t checked_bytes(const StoredTensor& tensor) const;

  ForeignFile file_;
  Catalog catalog_;
};

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

void CatalogReader::read_dataset(hid_t dataset, const std::string& name) {
  file_.require_plain_storage(dataset, name);
  const Handle type(H5Dget_type(dataset), H5Tclose);
  require(static_cast<bool>(type), "a type");
  if (name == format::kConfigText) {
    catalog_.info.config_text = file_.read_text_dataset(dataset, "the config", format::kMaxTextBytes);
    return;
  }

  if (catalog_.tensors.size() >= format::kMaxTensors) damaged("it has too many tensors");
  StoredTensor tensor;
  tensor.hashed.info.name = name;
  if (!hdf5::find_dtype(type.id(), tensor.hashed.info.dtype)) damaged("a dataset has a type that no tensor has");
  tensor.hashed.info.shape = read_shape(dataset, name);
  tensor.hashed.hash = file_.read_unsigned(dataset, format::kTensorHash);
  tensor.offset = file_.checked_offset(dataset, name, checked_bytes(tensor));
  catalog_.tensors.push_back(std::move(tensor));
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

}  // namespace

Catalog read_catalog(const InputFile& file) { return CatalogReader(file).read(); }

}  // namespace checkpoint
