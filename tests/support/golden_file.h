#pragma once
/// Reads the small HDF5 files of numbers that tests compare with.

#include <hdf5.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace tests {

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& path) : file_(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)) {
    if (file_ < 0) throw std::runtime_error("no HDF5 file " + path);
  }
  ~GoldenFile() { H5Fclose(file_); }
  GoldenFile(const GoldenFile&) = delete;

  /// The elements of a dataset, row after row.
  std::vector<double> doubles(const std::string& name) const { return read<double>(name, H5T_NATIVE_DOUBLE); }
  std::vector<int32_t> ints(const std::string& name) const { return read<int32_t>(name, H5T_NATIVE_INT32); }
  double number(const std::string& name) const { return doubles(name).at(0); }

  /// Names of the datasets of a group.
  std::vector<std::string> names(const std::string& group) const {
    const hid_t id = H5Gopen2(file_, group.c_str(), H5P_DEFAULT);
    if (id < 0) throw std::runtime_error("no group " + group);
    std::vector<std::string> found;
    const auto append = [](hid_t, const char* name, const H5L_info_t*, void* to) -> herr_t {
      static_cast<std::vector<std::string>*>(to)->emplace_back(name);
      return 0;
    };
    H5Literate(id, H5_INDEX_NAME, H5_ITER_INC, nullptr, append, &found);
    H5Gclose(id);
    return found;
  }

 private:
  template <class T>
  std::vector<T> read(const std::string& name, hid_t type) const {
    const hid_t dataset = H5Dopen2(file_, name.c_str(), H5P_DEFAULT);
    if (dataset < 0) throw std::runtime_error("no dataset " + name);
    const hid_t space = H5Dget_space(dataset);
    std::vector<T> elements(static_cast<size_t>(H5Sget_simple_extent_npoints(space)));
    const herr_t status = H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements.data());
    H5Sclose(space);
    H5Dclose(dataset);
    if (status < 0) throw std::runtime_error("cannot read " + name);
    return elements;
  }

  hid_t file_;
};

}  // namespace tests
