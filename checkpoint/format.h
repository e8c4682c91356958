#pragma once
/// Names and limits of the one-file format, for its writer and its reader.

#include <cstddef>
#include <cstdint>

namespace checkpoint::format {

constexpr const char* kFormatName = "trainer checkpoint, one file";
constexpr const char* kIndexFormatName = "trainer checkpoint, index of shards";
constexpr const char* kShardFormatName = "trainer checkpoint, shard";
constexpr uint64_t kVersion = 1;

// attributes of the root group
constexpr const char* kFormat = "format";
constexpr const char* kFormatVersion = "format_version";
constexpr const char* kStep = "step";
constexpr const char* kSamples = "samples";
constexpr const char* kTokens = "tokens";
constexpr const char* kSeed = "seed";
constexpr const char* kBuildId = "build_id";
constexpr const char* kContentHash = "content_hash";

constexpr const char* kTensorHash = "xxh3_64";      ///< attribute of a tensor's dataset
constexpr const char* kConfigText = "config.toml";  ///< dataset in the root group

// datasets of an index, which the program reads in place of the virtual ones, and of a shard, about itself
constexpr const char* kTables = "_tables";
constexpr const char* kTensorTable = "_tables/tensors.json";
constexpr const char* kFileTable = "_tables/files.json";
constexpr const char* kFragmentTable = "_tables/fragments";   ///< int64 [fragments, 10]
constexpr const char* kBlockTable = "_tables/block_xxh3_64";  ///< int64 [blocks, 1]: the bits of the hash
constexpr const char* kOwnHash = "_tables/own_xxh3_64";       ///< int64 [1, 1]: of the tables and the run

// A file that goes beyond these is not ours.
constexpr size_t kMaxTextBytes = 1 << 20;
constexpr size_t kMaxTableBytes = size_t{1} << 30;
constexpr size_t kMaxBuildIdBytes = 1 << 10;
constexpr size_t kMaxNameBytes = 512;
constexpr int kMaxDepth = 3;  ///< a/b/c
constexpr size_t kMaxTensors = 200'000;
constexpr int64_t kMaxElements = int64_t{1} << 50;  ///< of a tensor
constexpr int64_t kMaxFileBytes = int64_t{1} << 56;

}  // namespace checkpoint::format
