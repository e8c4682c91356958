#include <gtest/gtest.h>

#include "parallel/communicator_factory.h"
#include "tensor/ops.h"

namespace parallel {
namespace {

using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Tensor;

class SelfCommunicator : public ::testing::Test {
 protected:
  Tensor filled(std::initializer_list<float> values) {
    Tensor x = backend_.device->allocate({static_cast<int64_t>(values.size())}, Dtype::fp32, MemoryCategory::other);
    std::copy(values.begin(), values.end(), x.data<float>());
    return x;
  }
  static std::vector<float> values_of(const Tensor& x) { return {x.data<float>(), x.data<float>() + x.numel()}; }

  tensor::Backend backend_ = tensor::make_cpu_backend({.num_threads = 1});
  std::unique_ptr<Communicator> self_ = make_self_communicator("tp");
};

TEST_F(SelfCommunicator, IsAGroupOfOne) {
  EXPECT_EQ(self_->axis(), "tp");
  EXPECT_EQ(self_->rank(), 0);
  EXPECT_EQ(self_->size(), 1);
}

TEST_F(SelfCommunicator, LeavesInPlaceOperandsAlone) {
  Tensor x = filled({1, 2, 3});

  self_->all_reduce(x, Reduction::sum).wait();
  self_->all_reduce(x, Reduction::max).wait();
  self_->broadcast(x, 0).wait();
  self_->all_gather(x, x).wait();
  self_->reduce_scatter(x, x).wait();
  self_->barrier();

  EXPECT_EQ(values_of(x), (std::vector<float>{1, 2, 3}));
}

TEST_F(SelfCommunicator, CopiesOutOfPlace) {
  const Tensor x = filled({1, 2, 3});
  Tensor gathered = filled({0, 0, 0});
  Tensor scattered = filled({0, 0, 0});
  Tensor received = filled({0, 0, 0});

  self_->all_gather(x, gathered).wait();
  self_->reduce_scatter_v(x, scattered, {3}).wait();
  self_->all_to_all_v(x, {3}, received, {3}).wait();

  EXPECT_EQ(values_of(gathered), values_of(x));
  EXPECT_EQ(values_of(scattered), values_of(x));
  EXPECT_EQ(values_of(received), values_of(x));
}

TEST_F(SelfCommunicator, RefusesWhatAGroupOfOneCannotDo) {
  Tensor x = filled({1, 2, 3});
  Tensor shorter = filled({1});

  EXPECT_THROW(self_->all_gather(x, shorter), tensor::InternalError);
  EXPECT_THROW(self_->all_gather_v(x, x, {2}), tensor::InternalError);
  EXPECT_THROW(self_->reduce_scatter_v(x, x, {3, 0}), tensor::InternalError);
  EXPECT_THROW(self_->all_to_all_v(x, {2}, x, {2}), tensor::InternalError);
  EXPECT_THROW(self_->broadcast(x, 1), tensor::InternalError);
  EXPECT_THROW(self_->send(x, 0), tensor::InternalError);
  EXPECT_THROW(self_->receive(x, 1), tensor::InternalError);
}

TEST(MeshCommunicators, AreGroupsOfOneOnOneRank) {
  SelfCommunicatorFactory factory;

  const MeshCommunicators communicators(Mesh({}), 0, factory);

  for (int i = 0; i < kNumGroups; ++i) {
    const auto group = static_cast<Group>(i);
    EXPECT_EQ(communicators.at(group).size(), 1);
    EXPECT_EQ(communicators.at(group).axis(), to_string(group));
  }
}

}  // namespace
}  // namespace parallel
