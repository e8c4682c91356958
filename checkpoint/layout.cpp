#include "checkpoint/layout.h"

#include <algorithm>
#include <array>
#include <limits>

#include "checkpoint/format.h"

namespace checkpoint {
namespace {

using hdf5::Handle;

constexpr hsize_t kAlignFromBytes = 1 << 16;  // larger tensors start on a page
constexpr hsize_t kAlignment = 1 << 12;
constexpr hsize_t kMetadataBlockBytes = 1 << 16;  // metadata lies together, not between tensors

/// Creation properties of a class of objects, without time stamps: equal states give equal files.
Handle without_times(hid_t property_class) {
  Handle properties(H5Pcreate(property_class), H5Pclose);
  return H5Pset_obj_track_times(properties.id(), false) >= 0 ? std::move(properties) : Handle();
}

Handle create_file(const TemporaryFile& file) {
  const Handle access = hdf5::file_access();
  const Handle creation = without_times(H5P_FILE_CREATE);  // of the root group
  if (!access || !creation || H5Pset_alignment(access.id(), kAlignFromBytes, kAlignment) < 0 ||
      H5Pset_meta_block_size(access.id(), kMetadataBlockBytes) < 0) {
    return {};
  }
  // the file is ours already, by O_EXCL
  return Handle(H5Fcreate(file.temporary_path().c_str(), H5F_ACC_TRUNC, creation.id(), access.id()), H5Fclose);
}

/// Contiguous, space allocated at once, left unwritten.
Handle dataset_creation() {
  Handle properties = without_times(H5P_DATASET_CREATE);
  const hid_t id = properties.id();
  const bool is_ok = H5Pset_layout(id, H5D_CONTIGUOUS) >= 0 && H5Pset_alloc_time(id, H5D_ALLOC_TIME_EARLY) >= 0 &&
                     H5Pset_fill_time(id, H5D_FILL_TIME_NEVER) >= 0;
  return is_ok ? std::move(properties) : Handle();
}

Handle link_creation() {
  Handle properties(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  return H5Pset_char_encoding(properties.id(), H5T_CSET_UTF8) >= 0 ? std::move(properties) : Handle();
}

Handle scalar() { return Handle(H5Screate(H5S_SCALAR), H5Sclose); }

}  // namespace

Layout::Layout(const TemporaryFile& file) : temporary_(file) {
  hdf5::prepare_library();
  file_ = create_file(file);
  require(static_cast<bool>(file_), "the new checkpoint");
  dataset_creation_ = dataset_creation();
  group_creation_ = without_times(H5P_GROUP_CREATE);
  link_creation_ = link_creation();
  require(dataset_creation_ && group_creation_ && link_creation_, "the new checkpoint");
}

void Layout::require(bool is_ok, const std::string& what) const {
  if (!is_ok) temporary_.fail(what + " cannot be written", hdf5::last_error());
}

void Layout::describe_run(const RunInfo& info, const char* format_name, uint64_t content_hash) const {
  const Handle root(H5Gopen2(file_.id(), "/", H5P_DEFAULT), H5Gclose);
  require(static_cast<bool>(root), "the root group");
  add_text_attribute(root.id(), format::kFormat, format_name);
  add_number(root.id(), format::kFormatVersion, format::kVersion);
  add_number(root.id(), format::kStep, info.progress.step);
  add_number(root.id(), format::kSamples, info.progress.samples);
  add_number(root.id(), format::kTokens, info.progress.tokens);
  add_number(root.id(), format::kSeed, info.progress.seed);
  add_text_attribute(root.id(), format::kBuildId, info.build_id);
  add_number(root.id(), format::kContentHash, content_hash);
}

int64_t Layout::add_tensor(const HashedTensor& tensor) const {
  const tensor::Shape& shape = tensor.info.shape;
  std::array<hsize_t, tensor::Shape::kMaxDims> sizes{};
  for (int dim = 0; dim < shape.num_dims(); ++dim) sizes[static_cast<size_t>(dim)] = static_cast<hsize_t>(shape[dim]);
  const Handle space(H5Screate_simple(shape.num_dims(), sizes.data(), nullptr), H5Sclose);

  const Handle dataset = add_dataset(tensor.info.name, hdf5::file_type(tensor.info.dtype), space);
  add_number(dataset.id(), format::kTensorHash, tensor.hash);
  return shape.numel() == 0 ? 0 : offset_of(dataset);
}

int64_t Layout::add_values(const std::string& name, tensor::Dtype dtype, int64_t count) const {
  const auto size = static_cast<hsize_t>(count);
  const Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose);
  const Handle dataset = add_dataset(name, hdf5::file_type(dtype), space);
  return count == 0 ? 0 : offset_of(dataset);
}

int64_t Layout::add_text(const std::string& name, const std::string& text) const {
  return offset_of(add_dataset(name, hdf5::text_type(std::max<size_t>(text.size(), 1)), scalar()));
}

int64_t Layout::add_table(const std::string& name, int64_t rows, int64_t columns) const {
  const hsize_t sizes[] = {static_cast<hsize_t>(rows), static_cast<hsize_t>(columns)};
  const Handle space(H5Screate_simple(2, sizes, nullptr), H5Sclose);
  const Handle dataset = add_dataset(name, hdf5::file_type(tensor::Dtype::int64), space);
  return rows == 0 ? 0 : offset_of(dataset);
}

void Layout::add_virtual_tensor(const TensorInfo& info, const std::vector<Source>& sources) const {
  const int num_dims = info.shape.num_dims();
  CHECK(num_dims <= 2, "\"{}\" {} is a matrix or a vector", info.name, info.shape.str());
  std::array<hsize_t, tensor::Shape::kMaxDims> sizes{};
  for (int dim = 0; dim < num_dims; ++dim) sizes[static_cast<size_t>(dim)] = static_cast<hsize_t>(info.shape[dim]);
  const Handle space(H5Screate_simple(num_dims, sizes.data(), nullptr), H5Sclose);
  const Handle creation = without_times(H5P_DATASET_CREATE);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  bool is_ok = space && creation && H5Pset_fill_value(creation.id(), H5T_NATIVE_FLOAT, &nan) >= 0;
  for (const Source& source : sources) {
    const Box& box = source.box;
    const std::array<hsize_t, 2> start = {static_cast<hsize_t>(box.first_row), static_cast<hsize_t>(box.first_column)};
    const std::array<hsize_t, 2> count = {static_cast<hsize_t>(box.num_rows), static_cast<hsize_t>(box.num_columns)};
    const auto begin = static_cast<hsize_t>(source.begin), numel = static_cast<hsize_t>(box.numel());
    const auto dataset_count = static_cast<hsize_t>(source.dataset_count);
    const Handle from(H5Screate_simple(1, &dataset_count, nullptr), H5Sclose);
    is_ok = is_ok && H5Sselect_hyperslab(from.id(), H5S_SELECT_SET, &begin, nullptr, &numel, nullptr) >= 0 &&
            H5Sselect_hyperslab(space.id(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) >= 0 &&
            H5Pset_virtual(creation.id(), space.id(), source.path.c_str(), source.dataset.c_str(), from.id()) >= 0;
  }
  require(is_ok && H5Sselect_all(space.id()) >= 0, "\"" + info.name + "\"");
  add_groups_above(info.name);
  const Handle dataset(H5Dcreate2(file_.id(), info.name.c_str(), hdf5::file_type(info.dtype).id(), space.id(),
                                  link_creation_.id(), creation.id(), H5P_DEFAULT),
                       H5Dclose);
  require(static_cast<bool>(dataset), "\"" + info.name + "\"");
}

void Layout::close() {
  dataset_creation_.close();
  group_creation_.close();
  link_creation_.close();
  require(file_.close(), "the new checkpoint");
}

void Layout::add_groups_above(const std::string& name) const {
  for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    const std::string group = name.substr(0, slash);
    if (H5Lexists(file_.id(), group.c_str(), H5P_DEFAULT) > 0) continue;
    const Handle created(H5Gcreate2(file_.id(), group.c_str(), link_creation_.id(), group_creation_.id(), H5P_DEFAULT),
                         H5Gclose);
    require(static_cast<bool>(created), "\"" + group + "\"");
  }
}

Handle Layout::add_dataset(const std::string& name, const Handle& type, const Handle& space) const {
  add_groups_above(name);
  Handle dataset(H5Dcreate2(file_.id(), name.c_str(), type.id(), space.id(), link_creation_.id(),
                            dataset_creation_.id(), H5P_DEFAULT),
                 H5Dclose);
  require(static_cast<bool>(dataset), "\"" + name + "\"");
  return dataset;
}

int64_t Layout::offset_of(const Handle& dataset) const {
  const haddr_t offset = H5Dget_offset(dataset.id());
  require(offset != HADDR_UNDEF, "the place of a tensor");
  return static_cast<int64_t>(offset);
}

void Layout::add_attribute(hid_t object, const char* name, const Handle& type, const void* value) const {
  Handle attribute(H5Acreate2(object, name, type.id(), scalar().id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  require(attribute && H5Awrite(attribute.id(), type.id(), value) >= 0, name);
  require(attribute.close(), name);
}

void Layout::add_number(hid_t object, const char* name, uint64_t value) const {
  add_attribute(object, name, Handle(H5Tcopy(H5T_STD_U64LE), H5Tclose), &value);
}

void Layout::add_number(hid_t object, const char* name, int64_t value) const {
  add_attribute(object, name, Handle(H5Tcopy(H5T_STD_I64LE), H5Tclose), &value);
}

void Layout::add_text_attribute(hid_t object, const char* name, const std::string& value) const {
  // c_str(): an empty text still has its NUL
  add_attribute(object, name, hdf5::text_type(std::max<size_t>(value.size(), 1)), value.c_str());
}

}  // namespace checkpoint
