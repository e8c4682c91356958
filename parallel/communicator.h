#pragma once
/// Talking inside one group of ranks. A layer gets the group it talks in at construction; a group of one is the
/// identity and records nothing, so that no caller ever asks `if (size > 1)`.
///
/// Every call is asynchronous and returns a handle that must be waited on; until then its tensors belong to the call.
/// The same layout gives bitwise the same result run after run. Sizes are known to both sides: nothing is negotiated.

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace parallel {

/// What is still under way inside one call.
class PendingCall {
 public:
  virtual ~PendingCall() = default;
  virtual void wait() = 0;
};

/// A call in flight. Waits in its destructor at the latest; `Handle()` is already done. Where an error is on its way to
/// ending the program, nothing is waited for: the peer may be the one that was lost.
class [[nodiscard]] Handle {
 public:
  Handle() = default;
  explicit Handle(std::unique_ptr<PendingCall> pending) : pending_(std::move(pending)) {}
  Handle(Handle&&) = default;
  Handle& operator=(Handle&& other) {
    wait();
    pending_ = std::move(other.pending_);
    return *this;
  }
  ~Handle() {
    if (std::uncaught_exceptions() > 0) {
      static_cast<void>(pending_.release());  // its buffers may still be written to: never freed
    } else {
      wait();
    }
  }

  void wait() {
    if (pending_) std::exchange(pending_, nullptr)->wait();
  }

 private:
  std::unique_ptr<PendingCall> pending_;
};

enum class Reduction { sum, max };

/// Which buffer of an all_to_all_v is on this rank's bill. What goes out and comes back is the same rows: counted when
/// they are sent and when they are received, every rank pays for its own both times, wherever they went.
enum class Counted { sent, received };

class Communicator {
 public:
  virtual ~Communicator() = default;

  const std::string& axis() const { return axis_; }  ///< "tp", "dp", "world": what the ledger calls the group
  int rank() const { return rank_; }                 ///< place in the group
  int size() const { return size_; }

  /// x becomes the reduction over the group, on every rank.
  virtual Handle all_reduce(tensor::Tensor& x, Reduction reduction) = 0;
  /// whole [size * n, ...] = the parts [n, ...] of all ranks in rank order. part may be its own place in whole.
  Handle all_gather(const tensor::Tensor& part, tensor::Tensor& whole) {
    return all_gather_v(part, whole, equal_rows(part));
  }
  /// part [n, ...] = this rank's n rows of the sum of whole [size * n, ...]. part may be its own place in whole.
  Handle reduce_scatter(const tensor::Tensor& whole, tensor::Tensor& part) {
    return reduce_scatter_v(whole, part, equal_rows(part));
  }
  /// The same where the part of rank i of the group is rows[i] rows, which may be none.
  virtual Handle all_gather_v(const tensor::Tensor& part, tensor::Tensor& whole, const std::vector<int64_t>& rows) = 0;
  virtual Handle reduce_scatter_v(const tensor::Tensor& whole, tensor::Tensor& part,
                                  const std::vector<int64_t>& rows) = 0;
  /// Rank i of the group gets send_rows[i] rows of `send` (in rank order); `receive` holds the rows from each rank.
  virtual Handle all_to_all_v(const tensor::Tensor& send, const std::vector<int64_t>& send_rows,
                              tensor::Tensor& receive, const std::vector<int64_t>& receive_rows, Counted counted) = 0;
  Handle all_to_all_v(const tensor::Tensor& send, const std::vector<int64_t>& send_rows, tensor::Tensor& receive,
                      const std::vector<int64_t>& receive_rows) {
    return all_to_all_v(send, send_rows, receive, receive_rows, Counted::sent);
  }
  /// x of rank `root` of the group, on every rank.
  virtual Handle broadcast(tensor::Tensor& x, int root) = 0;
  virtual Handle send(const tensor::Tensor& x, int to) = 0;
  virtual Handle receive(tensor::Tensor& x, int from) = 0;
  virtual void barrier() = 0;

 protected:
  Communicator(std::string axis, int rank, int size) : axis_(std::move(axis)), rank_(rank), size_(size) {}

 private:
  std::vector<int64_t> equal_rows(const tensor::Tensor& part) const {
    return std::vector<int64_t>(static_cast<size_t>(size_), part.dim(0));
  }

  std::string axis_;
  int rank_;
  int size_;
};

/// The group of one: every call is the identity (out-of-place calls copy), and nothing is recorded.
std::unique_ptr<Communicator> make_self_communicator(std::string axis);

}  // namespace parallel
