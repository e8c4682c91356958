#pragma once
/// One MPI communicator, shared by all groups of the same ranks.

#include <mpi.h>

#include <memory>
#include <vector>

#include "parallel/mpi_call.h"

namespace parallel {

class MpiChannel {
 public:
  /// Collective over `world_ranks` (ranks of MPI_COMM_WORLD, in the order of the group).
  MpiChannel(const std::vector<int>& world_ranks, int64_t max_message_bytes, std::shared_ptr<MpiProgress> progress);
  ~MpiChannel();
  MpiChannel(const MpiChannel&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm comm() const { return comm_; }
  MpiProgress& progress() { return *progress_; }

  /// Messages of the next collective: its tag is its own among those in flight, the same on every rank.
  MpiMessages next_collective();
  /// Messages of send() and receive().
  MpiMessages point_to_point() const { return {comm_, 0, max_message_bytes_}; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int next_tag_ = 1;
  int max_tag_ = 32767;  // what the standard guarantees
  int64_t max_message_bytes_;
  std::shared_ptr<MpiProgress> progress_;
};

}  // namespace parallel
