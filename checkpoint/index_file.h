#pragma once
/// index.h5: every logical tensor as a virtual dataset over the shards, readable by h5py, HDFView and h5dump under its
/// own name, and the tables of an Index, which this program reads in their place.
///
///   /                          attributes format, format_version, step, samples, tokens, seed, build_id
///   /config.toml               the run's config
///   /weights/<name> ...        virtual; paths of shards are relative to the index, so that the folder may move
///   /_tables/tensors.json      [[name, dtype, [sizes]], ...]           /_tables/files.json   [[path, bytes], ...]
///   /_tables/fragments         int64 [n, 10]: tensor, first row, rows, first column, columns, begin, end (of the box),
///                              file, offset, first block
///   /_tables/block_xxh3_64     int64 [blocks, 1]

#include <string>

#include "checkpoint/file.h"
#include "checkpoint/index.h"

namespace checkpoint {

/// StorageError where it cannot be written. In place and on disk afterwards.
void write_index(const std::string& path, const Index& index);

/// DamagedError where it is not an index, or contradicts itself.
Index read_index(const InputFile& file);

}  // namespace checkpoint
