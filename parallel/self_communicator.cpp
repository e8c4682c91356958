#include "parallel/communicator.h"
#include "parallel/row_offsets.h"
#include "tensor/device.h"
#include "tensor/error.h"

namespace parallel {
namespace {

using tensor::Tensor;

void copy_unless_same(const Tensor& from, Tensor& to) {
  CHECK(from.shape() == to.shape() && from.dtype() == to.dtype(), "{} of {} and {} of {} match in a group of one",
        from.shape().str(), to_string(from.dtype()), to.shape().str(), to_string(to.dtype()));
  if (from.raw() != to.raw()) to.device().copy(from, to);
}

class SelfCommunicator final : public Communicator {
 public:
  explicit SelfCommunicator(std::string axis) : Communicator(std::move(axis), 0, 1) {}

  Handle all_reduce(Tensor&, Reduction) override { return {}; }

  Handle all_gather_v(const Tensor& part, Tensor& whole, const std::vector<int64_t>& rows) override {
    part_offsets(rows, 0, 1, part, whole);
    copy_unless_same(part, whole);
    return {};
  }

  Handle reduce_scatter_v(const Tensor& whole, Tensor& part, const std::vector<int64_t>& rows) override {
    part_offsets(rows, 0, 1, part, whole);
    copy_unless_same(whole, part);
    return {};
  }

  Handle all_to_all_v(const Tensor& send, const std::vector<int64_t>& send_rows, Tensor& receive,
                      const std::vector<int64_t>& receive_rows, Counted) override {
    CHECK(send_rows == receive_rows && send_rows == std::vector<int64_t>{send.dim(0)},
          "a group of one sends all {} rows to itself", send.dim(0));
    copy_unless_same(send, receive);
    return {};
  }

  Handle broadcast(Tensor&, int root) override {
    CHECK(root == 0, "rank {} in group {} of one", root, axis());
    return {};
  }

  Handle send(const Tensor&, int to) override { return no_peer(to); }
  Handle receive(Tensor&, int from) override { return no_peer(from); }
  void barrier() override {}

 private:
  Handle no_peer(int rank) const {
    CHECK(false, "rank {} does not exist in group {} of one; the plan places no message between neighbours on one rank",
          rank, axis());
    return {};
  }
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(std::string axis) {
  return std::make_unique<SelfCommunicator>(std::move(axis));
}

}  // namespace parallel
