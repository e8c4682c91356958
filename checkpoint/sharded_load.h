#pragma once
/// Loading what another layout may have saved. Every fragment is read by one rank, the one that needs most of it,
/// hashed on its way, and handed to the others: the job reads each byte once.

#include <span>
#include <string>
#include <vector>

#include "checkpoint/block_reader.h"
#include "checkpoint/shard.h"
#include "checkpoint/wire.h"

namespace checkpoint {

/// All ranks together, with rank 0's checkpoint; fills every wanted fragment. DamagedError on every rank where bytes do
/// not have their hash, or are not there: what was wanted is then partly overwritten.
void load_fragments(const Wire& wire, const OpenCheckpoint& checkpoint, std::span<const LocalFragment> wanted);

/// On rank 0 (others: nothing): CheckpointError where the ranks want other tensors than there are, in name, dtype or
/// shape; all differences at once. All ranks together.
void require_same_tensors(const Wire& wire, const OpenCheckpoint& checkpoint, const std::string& path,
                          std::span<const LocalFragment> wanted);

}  // namespace checkpoint
