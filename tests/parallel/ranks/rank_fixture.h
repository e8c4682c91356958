#pragma once
/// What the tests of communicators share: a device, numbers every rank can predict, and the world in two settings.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "parallel/mpi_communicator_factory.h"
#include "tensor/ops.h"
#include "tests/support/rank_test.h"

namespace tests {

/// Element `index` of rank `rank`: a small whole number, so that sums are exact in every dtype.
inline double element(int rank, int64_t index) { return static_cast<double>((rank * 7 + index * 3) % 11 - 5); }

class RankTest : public ::testing::Test {
 protected:
  int rank() const { return mpi_environment().world_rank(); }
  int size() const { return mpi_environment().world_size(); }

  std::vector<int> world() const {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r) ranks.push_back(r);
    return ranks;
  }

  /// The world as shipped, and with every message cut into small pieces and every all_reduce in two rounds.
  std::vector<std::unique_ptr<parallel::Communicator>> communicators() {
    std::vector<std::unique_ptr<parallel::Communicator>> made;
    made.push_back(factory_.make("world", world()));
    made.push_back(cutting_factory_.make("world", world()));
    return made;
  }

  tensor::Tensor allocate(tensor::Shape shape, tensor::Dtype dtype) {
    return backend_.device->allocate(shape, dtype, tensor::MemoryCategory::other);
  }

  template <class T>
  tensor::Tensor make(tensor::Shape shape, auto&& value_at) {
    tensor::Tensor x = allocate(shape, tensor::dtype_of<T>);
    for (int64_t i = 0; i < x.numel(); ++i)
      x.data<T>()[i] = static_cast<T>(static_cast<tensor::compute_t<T>>(value_at(i)));
    return x;
  }
  /// This rank's elements.
  template <class T>
  tensor::Tensor elements(tensor::Shape shape) {
    return make<T>(shape, [this](int64_t i) { return element(rank(), i); });
  }

  template <class T>
  static void expect_elements(const tensor::Tensor& x, auto&& value_at, const char* what = "") {
    for (int64_t i = 0; i < x.numel(); ++i) {
      const auto value = static_cast<tensor::compute_t<T>>(x.data<T>()[i]);
      EXPECT_EQ(static_cast<double>(value), value_at(i)) << what << " element " << i << " of " << x.shape().str();
    }
  }

  double sum_over_ranks(int64_t index) const {
    double sum = 0;
    for (int r = 0; r < size(); ++r) sum += element(r, index);
    return sum;
  }

  tensor::Backend backend_ = tensor::make_cpu_backend({.num_threads = 1});
  parallel::Ledger ledger_;
  parallel::MpiCommunicatorFactory factory_{mpi_environment(), ledger_};
  parallel::MpiCommunicatorFactory cutting_factory_{
      mpi_environment(), ledger_, {.world_ranks = {}, .max_message_bytes = 1000, .small_all_reduce_bytes = 0}};
};

}  // namespace tests
