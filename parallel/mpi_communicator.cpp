#include "parallel/mpi_communicator.h"

#include <algorithm>
#include <cstring>

#include "parallel/mpi_check.h"
#include "parallel/reduce.h"
#include "parallel/row_offsets.h"
#include "tensor/device.h"

namespace parallel {
namespace {

using tensor::Dtype;
using tensor::Tensor;

/// A contiguous tensor as MPI sees it.
struct Buffer {
  std::byte* data = nullptr;
  int64_t count = 0;
  Dtype dtype = Dtype::fp32;

  explicit Buffer(const Tensor& x) : data(static_cast<std::byte*>(x.raw())), count(x.numel()), dtype(x.dtype()) {
    CHECK(static_cast<bool>(x), "there is a tensor to move");
    CHECK(x.is_contiguous(), "the rows of {} lie together", x.shape().str());
    CHECK(x.device().kind() == tensor::DeviceKind::cpu, "MPI moves host memory, not that of {}", x.device().describe());
  }
  int64_t element_bytes() const { return tensor::size_of(dtype); }
  int64_t bytes() const { return count * element_bytes(); }
  std::byte* at(int64_t element) const { return data + element * element_bytes(); }
};

/// Elements [begin, end) of a buffer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};

/// Nearly equal consecutive parts.
Range part_of(int64_t count, int rank, int size) {
  const int64_t quotient = count / size;
  const int64_t remainder = count % size;
  const auto begin = [&](int64_t r) { return r * quotient + std::min(r, remainder); };
  return {begin(rank), begin(rank + 1)};
}

/// The elements of a rank, from where those of each rank start.
Range range_of(const std::vector<int64_t>& offsets, int rank) {
  return {offsets[static_cast<size_t>(rank)], offsets[static_cast<size_t>(rank) + 1]};
}

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::string axis, std::shared_ptr<MpiChannel> channel, Ledger& ledger, int64_t small_all_reduce_bytes)
      : Communicator(std::move(axis), channel->rank(), channel->size()),
        channel_(std::move(channel)),
        ledger_(ledger),
        small_all_reduce_bytes_(small_all_reduce_bytes) {}

  Handle all_reduce(Tensor& x, Reduction reduction) override;
  Handle all_gather_v(const Tensor& part, Tensor& whole, const std::vector<int64_t>& rows) override;
  Handle reduce_scatter_v(const Tensor& whole, Tensor& part, const std::vector<int64_t>& rows) override;
  Handle all_to_all_v(const Tensor& send, const std::vector<int64_t>& send_rows, Tensor& receive,
                      const std::vector<int64_t>& receive_rows, Counted counted) override;
  Handle broadcast(Tensor& x, int root) override;
  Handle send(const Tensor& x, int to) override;
  Handle receive(Tensor& x, int from) override;
  void barrier() override;

 private:
  using Steps = std::vector<MpiCall::Step>;

  Handle start(Steps steps, Tensor scratch = {}) {
    return Handle(std::make_unique<MpiCall>(channel_->progress(), std::move(steps), std::move(scratch)));
  }
  void record(Collective op, const Buffer& x) { ledger_.record({axis(), op, x.dtype}, x.count); }
  void check_peer(int peer) const { CHECK(0 <= peer && peer < size(), "rank {} in {} of {}", peer, axis(), size()); }

  /// The k-th peer to talk to: everybody starts with another one.
  int send_peer(int k) const { return (rank() + k) % size(); }
  int receive_peer(int k) const { return (rank() - k + size()) % size(); }

  Handle all_reduce_whole(const Tensor& x, Reduction reduction);
  Handle all_reduce_parts(const Tensor& x, Reduction reduction);
  /// Space for `count` elements from each peer.
  Tensor scratch_for_peers(const Tensor& like, int64_t count) const;
  /// Everybody's `own.count` elements, rank by rank: mine, and those of peers in the scratch.
  std::vector<const void*> parts_by_rank(const void* own, const Buffer& scratch, int64_t count) const;
  std::byte* scratch_slot(const Buffer& scratch, int peer, int64_t count) const {
    return scratch.at((peer < rank() ? peer : peer - 1) * count);
  }

  std::shared_ptr<MpiChannel> channel_;
  Ledger& ledger_;
  int64_t small_all_reduce_bytes_;
};

Tensor MpiCommunicator::scratch_for_peers(const Tensor& like, int64_t count) const {
  return like.device().allocate({(size() - 1) * count}, like.dtype(), tensor::MemoryCategory::workspace);
}

std::vector<const void*> MpiCommunicator::parts_by_rank(const void* own, const Buffer& scratch, int64_t count) const {
  std::vector<const void*> parts;
  for (int r = 0; r < size(); ++r) parts.push_back(r == rank() ? own : scratch_slot(scratch, r, count));
  return parts;
}

Handle MpiCommunicator::all_reduce(Tensor& x, Reduction reduction) {
  record(Collective::all_reduce, Buffer(x));
  return x.bytes() <= small_all_reduce_bytes_ ? all_reduce_whole(x, reduction) : all_reduce_parts(x, reduction);
}

Handle MpiCommunicator::all_reduce_whole(const Tensor& x, Reduction reduction) {
  const Buffer own(x);
  Tensor scratch = scratch_for_peers(x, own.count);
  const Buffer others(scratch);
  const MpiMessages messages = channel_->next_collective();
  auto exchange = [=, this](Requests& requests) {
    for (int k = 1; k < size(); ++k) {
      const int from = receive_peer(k);
      messages.receive(requests, scratch_slot(others, from, own.count), own.bytes(), from);
      messages.send(requests, own.data, own.bytes(), send_peer(k));
    }
  };
  auto reduce = [=, this](Requests&) {
    reduce_in_rank_order(parts_by_rank(own.data, others, own.count), own.count, own.dtype, reduction, own.data);
  };
  return start({exchange, reduce}, std::move(scratch));
}

Handle MpiCommunicator::all_reduce_parts(const Tensor& x, Reduction reduction) {
  const Buffer whole(x);
  const Range own = part_of(whole.count, rank(), size());
  Tensor scratch = scratch_for_peers(x, own.count());
  const Buffer others(scratch);
  const MpiMessages scatter = channel_->next_collective();
  const MpiMessages gather = channel_->next_collective();
  const int64_t own_bytes = own.count() * whole.element_bytes();
  auto exchange = [=, this](Requests& requests) {
    for (int k = 1; k < size(); ++k) {
      const int from = receive_peer(k);
      scatter.receive(requests, scratch_slot(others, from, own.count()), own_bytes, from);
      const Range theirs = part_of(whole.count, send_peer(k), size());
      scatter.send(requests, whole.at(theirs.begin), theirs.count() * whole.element_bytes(), send_peer(k));
    }
  };
  auto reduce_and_share = [=, this](Requests& requests) {
    for (int k = 1; k < size(); ++k) {
      const Range theirs = part_of(whole.count, receive_peer(k), size());
      gather.receive(requests, whole.at(theirs.begin), theirs.count() * whole.element_bytes(), receive_peer(k));
    }
    std::byte* const mine = whole.at(own.begin);
    reduce_in_rank_order(parts_by_rank(mine, others, own.count()), own.count(), whole.dtype, reduction, mine);
    for (int k = 1; k < size(); ++k) gather.send(requests, mine, own_bytes, send_peer(k));
  };
  return start({exchange, reduce_and_share}, std::move(scratch));
}

Handle MpiCommunicator::all_gather_v(const Tensor& part, Tensor& whole, const std::vector<int64_t>& rows) {
  const Buffer mine(part);
  const Buffer all(whole);
  const std::vector<int64_t> offsets = part_offsets(rows, rank(), size(), part, whole);
  record(Collective::all_gather, all);
  copy_bytes(all.at(offsets[static_cast<size_t>(rank())]), mine.data, mine.bytes());
  const MpiMessages messages = channel_->next_collective();
  auto exchange = [=, this](Requests& requests) {
    for (int k = 1; k < size(); ++k) {
      const Range theirs = range_of(offsets, receive_peer(k));
      messages.receive(requests, all.at(theirs.begin), theirs.count() * all.element_bytes(), receive_peer(k));
      messages.send(requests, mine.data, mine.bytes(), send_peer(k));
    }
  };
  return start({exchange});
}

Handle MpiCommunicator::reduce_scatter_v(const Tensor& whole, Tensor& part, const std::vector<int64_t>& rows) {
  const Buffer all(whole);
  const Buffer mine(part);
  const std::vector<int64_t> offsets = part_offsets(rows, rank(), size(), part, whole);
  const std::byte* const own = all.at(offsets[static_cast<size_t>(rank())]);
  CHECK(mine.data == own || mine.data + mine.bytes() <= all.data || mine.data >= all.data + all.bytes(),
        "the part is its own place in the whole or outside of it");
  record(Collective::reduce_scatter, all);
  Tensor scratch = scratch_for_peers(whole, mine.count);
  const Buffer others(scratch);
  const MpiMessages messages = channel_->next_collective();
  auto exchange = [=, this](Requests& requests) {
    for (int k = 1; k < size(); ++k) {
      const int from = receive_peer(k);
      messages.receive(requests, scratch_slot(others, from, mine.count), mine.bytes(), from);
      const Range theirs = range_of(offsets, send_peer(k));
      messages.send(requests, all.at(theirs.begin), theirs.count() * all.element_bytes(), send_peer(k));
    }
  };
  auto reduce = [=, this](Requests&) {
    reduce_in_rank_order(parts_by_rank(own, others, mine.count), mine.count, mine.dtype, Reduction::sum, mine.data);
  };
  return start({exchange, reduce}, std::move(scratch));
}

Handle MpiCommunicator::all_to_all_v(const Tensor& send, const std::vector<int64_t>& send_rows, Tensor& receive,
                                     const std::vector<int64_t>& receive_rows, Counted counted) {
  const Buffer from(send);
  const Buffer to(receive);
  CHECK(send.shape().row_numel() == receive.shape().row_numel() && from.dtype == to.dtype, "rows of {} and {} match",
        send.shape().str(), receive.shape().str());
  const std::vector<int64_t> send_at = row_offsets(send_rows, size(), send);
  const std::vector<int64_t> receive_at = row_offsets(receive_rows, size(), receive);
  const auto bytes_at = [width = from.element_bytes()](const std::vector<int64_t>& at, int peer) {
    return range_of(at, peer).count() * width;
  };
  const auto own = static_cast<size_t>(rank());
  CHECK(send_rows[own] == receive_rows[own], "rank {} sends itself {} rows and expects {}", own, send_rows[own],
        receive_rows[own]);
  record(Collective::all_to_all_v, counted == Counted::sent ? from : to);
  copy_bytes(to.at(receive_at[own]), from.at(send_at[own]), bytes_at(send_at, rank()));
  const MpiMessages messages = channel_->next_collective();
  auto exchange = [=, this](Requests& requests) {
    for (int k = 1; k < size(); ++k) {
      const int source = receive_peer(k);
      const int target = send_peer(k);
      messages.receive(requests, to.at(receive_at[static_cast<size_t>(source)]), bytes_at(receive_at, source), source);
      messages.send(requests, from.at(send_at[static_cast<size_t>(target)]), bytes_at(send_at, target), target);
    }
  };
  return start({exchange});
}

Handle MpiCommunicator::broadcast(Tensor& x, int root) {
  check_peer(root);
  const Buffer buffer(x);
  record(Collective::broadcast, buffer);
  const int64_t max_bytes = channel_->point_to_point().max_bytes;
  auto post = [=, comm = channel_->comm()](Requests& requests) {
    for (int64_t begin = 0; begin < buffer.bytes(); begin += max_bytes) {
      const int count = static_cast<int>(std::min(max_bytes, buffer.bytes() - begin));
      MPI_CHECK(MPI_Ibcast(buffer.data + begin, count, MPI_BYTE, root, comm, &requests.emplace_back(MPI_REQUEST_NULL)));
    }
  };
  return start({post});
}

Handle MpiCommunicator::send(const Tensor& x, int to) {
  check_peer(to);
  const Buffer buffer(x);
  record(Collective::send, buffer);
  return start({[=, messages = channel_->point_to_point()](Requests& requests) {
    messages.send(requests, buffer.data, buffer.bytes(), to);
  }});
}

Handle MpiCommunicator::receive(Tensor& x, int from) {
  check_peer(from);
  const Buffer buffer(x);
  record(Collective::receive, buffer);
  return start({[=, messages = channel_->point_to_point()](Requests& requests) {
    messages.receive(requests, buffer.data, buffer.bytes(), from);
  }});
}

void MpiCommunicator::barrier() {
  start({[comm = channel_->comm()](Requests& requests) {
    MPI_CHECK(MPI_Ibarrier(comm, &requests.emplace_back(MPI_REQUEST_NULL)));
  }}).wait();
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(std::string axis, std::shared_ptr<MpiChannel> channel,
                                                    Ledger& ledger, int64_t small_all_reduce_bytes) {
  return std::make_unique<MpiCommunicator>(std::move(axis), std::move(channel), ledger, small_all_reduce_bytes);
}

}  // namespace parallel
