#pragma once
/// MPI's life in this process, and how a failure of one rank becomes the end of all. Works bare (a world of one),
/// under mpirun and under srun. One per process, made by main() before everything that communicates.

#include <functional>
#include <string>

#include "tensor/error.h"

namespace parallel {

class MpiEnvironment {
 public:
  /// MPI_THREAD_FUNNELED: only the thread that makes this may communicate.
  MpiEnvironment();
  /// Finalises, or aborts all ranks where an exception is passing (peers would wait for ever in MPI_Finalize).
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;

  int world_rank() const { return world_rank_; }
  int world_size() const { return world_size_; }
  int local_rank() const { return local_rank_; }  ///< place among the ranks of this node
  int local_size() const { return local_size_; }  ///< ranks on this node
  const std::string& host() const { return host_; }

  /// What `body` returns. An error that it throws is said once on stderr and ends every rank with the error's code.
  /// Errors that all ranks find at once (a bad config) are said by rank 0 alone: others give it a moment to end them.
  int run(const std::function<int()>& body);

  /// Ends every rank of the job with this code, now. Says nothing (the launcher may).
  [[noreturn]] void abort(int code);

 private:
  int fail(const std::string& message, tensor::ExitCode code);

  int world_rank_ = 0;
  int world_size_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  std::string host_;
};

}  // namespace parallel
