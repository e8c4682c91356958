#pragma once
/// Everything of a checkpoint file but the bytes of its tensors: groups, datasets with their places, attributes.

#include <string>
#include <vector>

#include "checkpoint/content_hash.h"
#include "checkpoint/file.h"
#include "checkpoint/fragment.h"
#include "checkpoint/hdf5.h"

namespace checkpoint {

/// Lays out `file`, from the first call to close(); bytes may be written at the returned offsets after close().
/// StorageError where HDF5 cannot write.
class Layout {
 public:
  explicit Layout(const TemporaryFile& file);

  void describe_run(const RunInfo& info, const char* format_name, uint64_t content_hash) const;
  int64_t add_tensor(const HashedTensor& tensor) const;  ///< offset of its bytes; 0 where it has none
  int64_t add_text(const std::string& name, const std::string& text) const;  ///< offset of its bytes
  /// `count` values in a row, without a hash of their own; offset of their bytes.
  int64_t add_values(const std::string& name, tensor::Dtype dtype, int64_t count) const;
  int64_t add_table(const std::string& name, int64_t rows, int64_t columns) const;  ///< int64; offset of its bytes

  /// Elements [begin, end) of a 1-D dataset of another file, in the order of rows, at a rectangle of a tensor.
  struct Source {
    std::string path, dataset;
    int64_t dataset_count = 0;  ///< elements of that dataset
    int64_t begin = 0;
    Box box;
  };
  /// A tensor whose values lie in other files; NaN where one is missing.
  void add_virtual_tensor(const TensorInfo& info, const std::vector<Source>& sources) const;
  void close();

 private:
  void require(bool is_ok, const std::string& what) const;
  void add_groups_above(const std::string& name) const;
  hdf5::Handle add_dataset(const std::string& name, const hdf5::Handle& type, const hdf5::Handle& space) const;
  int64_t offset_of(const hdf5::Handle& dataset) const;
  void add_attribute(hid_t object, const char* name, const hdf5::Handle& type, const void* value) const;
  void add_number(hid_t object, const char* name, uint64_t value) const;
  void add_number(hid_t object, const char* name, int64_t value) const;
  void add_text_attribute(hid_t object, const char* name, const std::string& value) const;

  const TemporaryFile& temporary_;
  hdf5::Handle file_;
  hdf5::Handle dataset_creation_;
  hdf5::Handle group_creation_;
  hdf5::Handle link_creation_;
};

}  // namespace checkpoint
