#pragma once
/// Everything that a layer is handed to talk in. Groups are borrowed; a group of one is the identity.

#include "parallel/config.h"
#include "parallel/parameter_store.h"
#include "parallel/sequence_parallel.h"
#include "parallel/tensor_parallel.h"

namespace parallel {

/// The ranks that each hold a part of every sequence.
struct SequenceParallel {
  Communicator& sp;
  SpMethod method = SpMethod::ring;

  SequencePart part() const { return {.rank = sp.rank(), .size = sp.size()}; }
};

/// Experts are shared out over ranks that otherwise split tokens.
struct ExpertParallel {
  Communicator& ep;         ///< every rank has experts of its own
  Communicator& expert_tp;  ///< the ranks that each have a part of the same experts
  Communicator& sequence;   ///< tp x sp: the ranks that hold parts of the same sequences
  DataParallel data;        ///< the ranks that hold the same experts
};

struct LayerGroups {
  TensorParallel tensor;
  SequenceParallel sequence;
  ExpertParallel expert;
};

}  // namespace parallel
