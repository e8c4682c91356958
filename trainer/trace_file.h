#pragma once
/// What every rank did and when, as one file in the Chrome trace format (opens in Perfetto or chrome://tracing): a row
/// of passes and a row of communication for each rank. Each rank writes its own part as the run goes; rank 0 joins them
/// at the end. Of a run that was killed, the parts are left.

#include <fstream>
#include <string>

#include "parallel/event_log.h"
#include "trainer/rank_context.h"

namespace trainer {

class TraceFile {
 public:
  /// All ranks together. Parts of an earlier run in `folder` are removed. StorageError where that fails.
  TraceFile(std::string folder, const RankContext& context);

  /// Appends what the log of the context has since the last call.
  void write_step(int64_t step);
  /// All ranks together: the parts become trace.json.
  void join();

 private:
  std::string part_path(int rank) const;
  [[noreturn]] void fail(const std::string& path) const;
  void clear_folder() const;
  void write_header();
  void copy_parts();

  std::string folder_;
  const RankContext& context_;
  std::ofstream part_;
};

}  // namespace trainer
