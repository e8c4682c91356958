#pragma once
/// An HDF5 file with the tables of an index or of a shard, and copies of it whose hash fits.

#include <string>

#include "checkpoint/index.h"
#include "tests/fuzz/random.h"

namespace fuzz {

class TablesFile {
 public:
  TablesFile(const std::string& path, const char* format_name);

  const std::string& bytes() const { return bytes_; }
  /// Other text in the lists of tensors and files, whatever it is.
  std::string with_other_text(Random& random) const;
  void write_with_other_numbers(const std::string& path, Random& random) const;

 private:
  uint64_t own_hash(const std::string& tensors, const std::string& files) const;
  void change(checkpoint::Index& index, Random& random) const;

  const char* format_name_;
  std::string bytes_;
  checkpoint::Index index_;
  std::string tensors_, files_;  ///< the text of both tables
};

}  // namespace fuzz
