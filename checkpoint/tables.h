#pragma once
/// The tables of an Index inside an HDF5 file: those of index.h5 tell of a whole checkpoint, those of a shard of
/// itself, so that a lost index can be made again.
///
///   /config.toml               the run's config
///   /_tables/tensors.json      [[name, dtype, [sizes]], ...]
///   /_tables/files.json        [[path, bytes], ...]; of a shard: []
///   /_tables/fragments         int64 [n, 10]: tensor, first row, rows, first column, columns, begin, end (of the box),
///                              file, offset, first block
///   /_tables/block_xxh3_64     int64 [blocks, 1]
///   /_tables/own_xxh3_64       int64 [1, 1]: of all of these, and of the run's numbers

#include "checkpoint/foreign_file.h"
#include "checkpoint/index.h"
#include "checkpoint/layout.h"

namespace checkpoint {

class TableWriter {
 public:
  /// Makes room for the tables of `index` as it will be: places, sizes of files and hashes may still be wrong.
  TableWriter(const Layout& layout, const Index& index);
  void write(const TemporaryFile& file, const Index& index) const;  ///< after layout.close()

 private:
  int64_t config_ = 0, tensors_ = 0, files_ = 0, fragments_ = 0, blocks_ = 0, own_hash_ = 0;  // offsets in the file
};

/// DamagedError where a table is missing, has another form, or was changed. What they say is not checked.
Index read_tables(const ForeignFile& file, const RunInfo& run);

}  // namespace checkpoint
