#pragma once
/// The whole state of a one-rank run in one HDF5 file, readable by h5py and h5dump.
///
///   /                     attributes format, format_version, step, samples, tokens, seed, build_id, content_hash
///   /config.toml          the run's config, a fixed-length string
///   /<group>/<name>       one contiguous dataset per tensor, little-endian, attribute xxh3_64 of its bytes
///
/// bf16 is a 16-bit HDF5 float type, which h5py shows as float32 with the exact values. `content_hash` covers the
/// numbers, the config, and name, dtype, shape and hash of every tensor: whatever changes in the file is either noticed
/// or has no meaning.
///
/// HDF5 lays out and describes; the bytes of tensors go by our own pread and pwrite, so that an error has its errno and
/// no size or offset of a foreign file is trusted before it was compared with the file's size.

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/state.h"

namespace checkpoint {

/// Writes a checkpoint under a temporary name, then publishes it as `path` in one atomic step: whatever happens in
/// between, `path` is what it was before or complete and on disk. StorageError names the file and what the system said.
void save(const std::string& path, const RunInfo& info, std::span<const NamedTensor> tensors);

/// The same for tensors that never are in memory together: `read` gives the bytes of one, by its place in the list,
/// which is in order of name. It is asked twice for each, the first time for its hash.
using ReadTensor = std::function<std::vector<std::byte>(size_t)>;
void save(const std::string& path, const RunInfo& info, std::span<const TensorInfo> tensors, const ReadTensor& read);

/// Fills `tensors` from the file. They must be exactly what the file holds, in name, dtype and shape; all differences
/// are reported at once, before any tensor is touched. DamagedError where contents do not match their hashes; the
/// tensors are then partly overwritten.
RunInfo load(const std::string& path, std::span<const NamedTensor> tensors);

struct Contents {
  RunInfo info;
  std::vector<TensorInfo> tensors;  ///< by name
};

/// What is in a checkpoint, without reading the tensors.
Contents inspect(const std::string& path);

/// Upper bound on the size of the file that save() would write.
int64_t file_bytes(const RunInfo& info, std::span<const NamedTensor> tensors);

}  // namespace checkpoint
