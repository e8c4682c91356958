#pragma once
/// One run at a time in a folder: two would write into each other's metrics and delete each other's checkpoints.

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/file.h"

namespace trainer {

/// Held until it goes, or its process dies. Where a file system has no locks, nothing is held, and nothing is said.
class RunLock {
 public:
  explicit RunLock(std::chrono::seconds patience = std::chrono::seconds(10)) : patience_(patience) {}

  // LayoutError, which names who holds a file, after some patience: a run that was killed takes a moment to be gone.
  // What is held already stays so.

  void hold_existing(const std::vector<std::string>& files);  ///< those that are there; writes nothing
  void hold(const std::vector<std::string>& files);           ///< all, each with the name of this process; StorageError

 private:
  checkpoint::FileDescriptor& acquire(const std::string& path);

  std::chrono::seconds patience_;
  std::map<std::string, checkpoint::FileDescriptor> held_;  // by path
};

}  // namespace trainer
