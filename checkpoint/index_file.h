#pragma once
/// index.h5: every logical tensor as a virtual dataset over the shards, readable by h5py, HDFView and h5dump under its
/// own name, and the tables of an Index, which this program reads in their place.
///
///   /                          attributes format, format_version, step, samples, tokens, seed, build_id
///   /weights/<name> ...        virtual; paths of shards are relative to the index, so that the folder may move
///   /config.toml, /_tables     see tables.h

#include <string>

#include "checkpoint/file.h"
#include "checkpoint/index.h"

namespace checkpoint {

/// StorageError where it cannot be written. In place and on disk afterwards.
void write_index(const std::string& path, const Index& index);

/// DamagedError where it is not an index, or contradicts itself.
Index read_index(const InputFile& file);

/// What a shard says of itself, as an index of one file that is called `path`: its tensors lack what other shards have.
/// DamagedError.
Index read_shard(const InputFile& file, const std::string& path);

}  // namespace checkpoint
