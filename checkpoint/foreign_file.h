#pragma once
/// An HDF5 file that somebody else may have written: only plain datasets and attributes of expected types are read, and
/// every size and offset is compared with the size of the file first.

#include <string>

#include "checkpoint/file.h"
#include "checkpoint/hdf5.h"
#include "checkpoint/state.h"

namespace checkpoint {

class ForeignFile {
 public:
  /// Opens it. DamagedError, here and below, where it is not what a checkpoint has.
  explicit ForeignFile(const InputFile& file);

  const InputFile& input() const { return file_; }
  hid_t root() const { return root_.id(); }
  [[noreturn]] void damaged(const std::string& why) const;
  void require(bool is_ok, const std::string& what) const;

  struct Run {
    RunInfo info;               ///< without the config
    uint64_t content_hash = 0;  ///< as the file claims
  };
  /// The attributes of the root group. CheckpointError where the format has another version.
  Run read_run(const char* format_name) const;

  /// Contiguous, inside the file, without filters.
  void require_plain_storage(hid_t dataset, const std::string& name) const;
  int64_t checked_offset(hid_t dataset, const std::string& name, int64_t bytes) const;
  std::string read_text_dataset(hid_t dataset, const std::string& name, size_t max_bytes) const;
  uint64_t read_unsigned(hid_t object, const char* name) const;
  int64_t read_signed(hid_t object, const char* name) const;
  std::string read_text(hid_t object, const char* name) const;

 private:
  void read_attribute(hid_t object, const char* name, hid_t type, void* value) const;

  const InputFile& file_;
  hdf5::Handle opened_, root_;
};

}  // namespace checkpoint
