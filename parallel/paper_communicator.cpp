#include "parallel/paper_communicator.h"

#include <algorithm>

#include "parallel/row_offsets.h"
#include "tensor/error.h"

namespace parallel {
namespace {

using tensor::Tensor;

class PaperCommunicator final : public Communicator {
 public:
  PaperCommunicator(std::string axis, int rank, int size, Ledger& ledger)
      : Communicator(std::move(axis), rank, size), ledger_(ledger) {}

  Handle all_reduce(Tensor& x, Reduction) override { return record(Collective::all_reduce, x); }

  Handle all_gather_v(const Tensor& part, Tensor& whole, const std::vector<int64_t>& rows) override {
    part_offsets(rows, rank(), size(), part, whole);
    return record(Collective::all_gather, whole);
  }

  Handle reduce_scatter_v(const Tensor& whole, Tensor& part, const std::vector<int64_t>& rows) override {
    part_offsets(rows, rank(), size(), part, whole);
    return record(Collective::reduce_scatter, whole);
  }

  Handle all_to_all_v(const Tensor& send, const std::vector<int64_t>& send_rows, Tensor& receive,
                      const std::vector<int64_t>& receive_rows, Counted counted) override {
    CHECK(send.shape().row_numel() == receive.shape().row_numel() && send.dtype() == receive.dtype(),
          "rows of {} and {} match", send.shape().str(), receive.shape().str());
    row_offsets(send_rows, size(), send);
    row_offsets(receive_rows, size(), receive);
    return record(Collective::all_to_all_v, counted == Counted::sent ? send : receive);
  }

  Handle broadcast(Tensor& x, int root) override {
    check_peer(root);
    return record(Collective::broadcast, x);
  }
  Handle send(const Tensor& x, int to) override {
    check_peer(to);
    return record(Collective::send, x);
  }
  Handle receive(Tensor& x, int from) override {
    check_peer(from);
    return record(Collective::receive, x);
  }
  void barrier() override {}

 private:
  Handle record(Collective op, const Tensor& x) {
    CHECK(x.is_contiguous(), "the rows of {} lie together", x.shape().str());
    ledger_.record({axis(), op, x.dtype()}, x.numel());
    return {};
  }
  void check_peer(int peer) const { CHECK(0 <= peer && peer < size(), "rank {} in {} of {}", peer, axis(), size()); }

  Ledger& ledger_;
};

}  // namespace

PaperCommunicatorFactory::PaperCommunicatorFactory(int world_rank, int world_size, Ledger& ledger)
    : world_rank_(world_rank), world_size_(world_size), ledger_(ledger) {
  CHECK(0 <= world_rank && world_rank < world_size, "rank {} in a world of {}", world_rank, world_size);
}

std::unique_ptr<Communicator> PaperCommunicatorFactory::make(std::string axis, const std::vector<int>& ranks) {
  const auto self = std::find(ranks.begin(), ranks.end(), world_rank_);
  CHECK(self != ranks.end(), "rank {} is in its {} group", world_rank_, axis);
  CHECK(std::all_of(ranks.begin(), ranks.end(), [this](int rank) { return 0 <= rank && rank < world_size_; }),
        "the {} group lies in a world of {}", axis, world_size_);
  if (ranks.size() == 1) return make_self_communicator(std::move(axis));
  return std::make_unique<PaperCommunicator>(std::move(axis), static_cast<int>(self - ranks.begin()),
                                             static_cast<int>(ranks.size()), ledger_);
}

}  // namespace parallel
