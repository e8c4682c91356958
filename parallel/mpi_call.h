#pragma once
/// A collective as a list of steps, each of which posts point-to-point messages once those of the step before have
/// arrived. Steps move on inside every wait() and every new call, of any call of the same progress engine: a rank
/// that waits for one thing never holds up what its peers wait for, in whatever order they wait. Nothing moves while
/// the program computes, except what MPI's own transport does (shared memory and network cards finish started
/// messages; a step that follows them starts at the next call).

#include <mpi.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "parallel/communicator.h"

namespace parallel {

class MpiCall;

/// The calls in flight on this rank, oldest first. One thread.
class MpiProgress {
 public:
  void add(MpiCall& call) { calls_.push_back(&call); }
  void remove(const MpiCall& call);
  void advance_all();

 private:
  std::vector<MpiCall*> calls_;
};

using Requests = std::vector<MPI_Request>;

class MpiCall final : public PendingCall {
 public:
  using Step = std::function<void(Requests&)>;

  /// Starts the first step. `scratch` lives as long as the call.
  MpiCall(MpiProgress& progress, std::vector<Step> steps, tensor::Tensor scratch = {});
  ~MpiCall() override;
  MpiCall(const MpiCall&) = delete;

  void wait() override;
  bool advance();  ///< true when done

 private:
  MpiProgress& progress_;
  std::vector<Step> steps_;
  size_t num_started_ = 0;
  Requests requests_;
  tensor::Tensor scratch_;
};

/// Messages between this rank and its peers in one MPI communicator, cut where MPI's int counts end.
struct MpiMessages {
  MPI_Comm comm = MPI_COMM_NULL;
  int tag = 0;
  int64_t max_bytes = int64_t{1} << 30;  ///< of one MPI message

  void send(Requests& requests, const void* data, int64_t bytes, int to) const;
  void receive(Requests& requests, void* data, int64_t bytes, int from) const;
};

}  // namespace parallel
