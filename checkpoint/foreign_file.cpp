#include "checkpoint/foreign_file.h"

#include <fmt/core.h>

#include <algorithm>

#include "checkpoint/format.h"

namespace checkpoint {

using hdf5::Handle;

ForeignFile::ForeignFile(const InputFile& file) : file_(file) {
  hdf5::prepare_library();
  const Handle access = hdf5::file_access();
  opened_ = Handle(H5Fopen(file_.path().c_str(), H5F_ACC_RDONLY, access.id()), H5Fclose);
  if (!opened_) damaged(fmt::format("HDF5 cannot open it ({})", hdf5::last_error()));
  root_ = Handle(H5Gopen2(opened_.id(), "/", H5P_DEFAULT), H5Gclose);
  require(static_cast<bool>(root_), "its root group");
}

void ForeignFile::damaged(const std::string& why) const {
  throw DamagedError(fmt::format("{}: this checkpoint is damaged, or no checkpoint: {}.", file_.path(), why));
}

void ForeignFile::require(bool is_ok, const std::string& what) const {
  if (!is_ok) damaged(fmt::format("{} cannot be read ({})", what, hdf5::last_error()));
}

ForeignFile::Run ForeignFile::read_run(const char* format_name) const {
  const hid_t root = root_.id();
  if (read_text(root, format::kFormat) != format_name) damaged("its format is another one");
  const uint64_t version = read_unsigned(root, format::kFormatVersion);
  if (version != format::kVersion) {
    throw tensor::CheckpointError(
        fmt::format("{}: this checkpoint has format version {}; this program reads version {}.\n"
                    "  Fix: use the program that wrote it.",
                    file_.path(), version, format::kVersion));
  }
  Run run;
  Progress& progress = run.info.progress;
  progress.step = read_signed(root, format::kStep);
  progress.samples = read_signed(root, format::kSamples);
  progress.tokens = read_signed(root, format::kTokens);
  progress.seed = read_unsigned(root, format::kSeed);
  run.info.build_id = read_text(root, format::kBuildId);
  run.content_hash = read_unsigned(root, format::kContentHash);
  return run;
}

void ForeignFile::require_plain_storage(hid_t dataset, const std::string& name) const {
  const Handle creation(H5Dget_create_plist(dataset), H5Pclose);
  require(static_cast<bool>(creation), name);
  if (H5Pget_layout(creation.id()) != H5D_CONTIGUOUS || H5Pget_external_count(creation.id()) != 0 ||
      H5Pget_nfilters(creation.id()) != 0) {
    damaged("a dataset is not stored as one plain piece inside the file");
  }
}

int64_t ForeignFile::checked_offset(hid_t dataset, const std::string& name, int64_t bytes) const {
  if (bytes == 0) return 0;
  const haddr_t offset = H5Dget_offset(dataset);
  require(offset != HADDR_UNDEF, name);
  if (bytes > file_.bytes() || offset > static_cast<haddr_t>(file_.bytes() - bytes)) {
    damaged(fmt::format("{} bytes at offset {} lie beyond its end at {}", bytes, offset, file_.bytes()));
  }
  return static_cast<int64_t>(offset);
}

void ForeignFile::read_attribute(hid_t object, const char* name, hid_t type, void* value) const {
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

uint64_t ForeignFile::read_unsigned(hid_t object, const char* name) const {
  uint64_t value = 0;
  read_attribute(object, name, H5T_STD_U64LE, &value);
  return value;
}

int64_t ForeignFile::read_signed(hid_t object, const char* name) const {
  int64_t value = 0;
  read_attribute(object, name, H5T_STD_I64LE, &value);
  return value;
}

std::string ForeignFile::read_text(hid_t object, const char* name) const {
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

std::string ForeignFile::read_text_dataset(hid_t dataset, const std::string& name, size_t max_bytes) const {
  const Handle type(H5Dget_type(dataset), H5Tclose);
  require(static_cast<bool>(type), name);
  const size_t size = H5Tget_size(type.id());
  if (H5Tget_class(type.id()) != H5T_STRING || H5Tis_variable_str(type.id()) != 0 || size > max_bytes) {
    damaged(fmt::format("\"{}\" inside is no text", name));
  }
  const auto bytes = static_cast<int64_t>(size);
  std::string text(size, '\0');
  file_.read_at(checked_offset(dataset, name, bytes), text.data(), bytes);
  return text.substr(0, text.find('\0'));
}

}  // namespace checkpoint
