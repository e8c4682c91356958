#pragma once
/// A checkpoint of many ranks: each writes the fragments that it owns into a shard of its own.
///
///   DIR/step_00000012/           published by one rename after all of it is on disk
///     MANIFEST.json              written last
///     index.h5
///     shards/000/rank_00000.h5   one folder for 256 ranks

#include <span>
#include <string>

#include "checkpoint/shard.h"
#include "checkpoint/wire.h"

namespace checkpoint {

/// All ranks together, after rank 0 created `dir`. `owned`: what no other rank has, none empty. Returns the folder.
/// StorageError on every rank where any could not write; names the rank and the file. Nothing is left behind then.
std::string save_sharded(const Wire& wire, const std::string& dir, const RunInfo& info,
                         std::span<const LocalFragment> owned);

}  // namespace checkpoint
