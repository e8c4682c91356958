#include "parallel/paper_communicator.h"

#include "tests/parallel/ranks/rank_fixture.h"

namespace tests {
namespace {

using parallel::Communicator;
using parallel::CommunicatorFactory;
using parallel::Group;
using parallel::Reduction;
using tensor::Tensor;

class PaperBill : public RankTest {
 protected:
  /// Every operation once, in groups of all sizes; what a rank passes may depend on the rank.
  void talk(CommunicatorFactory& factory, tensor::Device& device) const {
    const parallel::Mesh mesh = size() == 4 ? parallel::Mesh({.tp = 2, .dp_in = 2}) : parallel::Mesh({.tp = size()});
    const parallel::MeshCommunicators communicators(mesh, rank(), factory);
    for (const Group kind : {Group::tp, Group::grad, Group::world}) {
      Communicator& group = communicators.at(kind);
      const auto groups = static_cast<size_t>(group.size());
      std::vector<int64_t> rows(groups, 3), exchanged(groups, 2);
      rows[0] = 0;
      int64_t total = 0;
      for (const int64_t n : rows) total += n;
      const auto make = [&](int64_t n, tensor::Dtype dtype) {
        return device.allocate({n, 5}, dtype, tensor::MemoryCategory::other);
      };
      Tensor x = make(7, tensor::Dtype::fp64), whole = make(total, tensor::Dtype::bf16);
      Tensor part = make(rows[static_cast<size_t>(group.rank())], tensor::Dtype::bf16);
      Tensor sent = make(2 * group.size(), tensor::Dtype::int32),
             received = make(2 * group.size(), tensor::Dtype::int32);
      device.zero(x);
      device.zero(whole);

      group.all_reduce(x, Reduction::sum).wait();
      group.reduce_scatter_v(whole, part, rows).wait();
      group.all_gather_v(part, whole, rows).wait();
      group.all_to_all_v(sent, exchanged, received, exchanged).wait();
      group.broadcast(x, 0).wait();
      if (group.size() > 1 && group.rank() == 0) group.send(x, 1).wait();
      if (group.rank() == 1) group.receive(x, 0).wait();
      group.barrier();
    }
  }
};

TEST_F(PaperBill, IsWhatMpiRecords) {
  talk(factory_, *backend_.device);

  parallel::Ledger on_paper;
  parallel::PaperCommunicatorFactory factory(rank(), size(), on_paper);
  const tensor::Backend paper = tensor::make_paper_backend();
  talk(factory, *paper.device);

  EXPECT_EQ(on_paper.step(), ledger_.step());
  EXPECT_EQ(on_paper.step().empty(), size() == 1);
}

}  // namespace
}  // namespace tests
