#pragma once
/// One run at a time in a folder: two would write into each other's metrics and delete each other's checkpoints.

#include <string>

#include "checkpoint/file.h"

namespace trainer {

/// Held until it goes, or its process dies. A file system that has no locks is taken at its word: nothing is held.
class RunLock {
 public:
  /// LayoutError, which names who holds it. Waits some seconds before: a run that was killed takes a moment to be gone.
  explicit RunLock(const std::string& path);
  void sign();  ///< writes into it who holds it

 private:
  checkpoint::FileDescriptor fd_;
};

}  // namespace trainer
