#include "trainer/scalars.h"

#include "tensor/device.h"

namespace trainer {

using parallel::Reduction;
using tensor::MemoryCategory;
using tensor::Tensor;

namespace {

template <class T>
void all_reduce(parallel::Communicator& group, tensor::Device& device, std::span<T> x, Reduction reduction) {
  Tensor staged = device.allocate({std::ssize(x)}, tensor::dtype_of<T>, MemoryCategory::other);
  device.copy_from_host(x.data(), staged);
  group.all_reduce(staged, reduction).wait();
  device.copy_to_host(staged, x.data());
}

}  // namespace

double all_reduce_scalar(parallel::Communicator& group, tensor::Device& device, double x, Reduction reduction) {
  all_reduce(group, device, std::span(&x, 1), reduction);
  return x;
}

void all_reduce_sums(parallel::Communicator& group, tensor::Device& device, std::span<double> x) {
  all_reduce(group, device, x, Reduction::sum);
}

void all_reduce_integers(parallel::Communicator& group, tensor::Device& device, std::span<int64_t> x,
                         Reduction reduction) {
  all_reduce(group, device, x, reduction);
}

}  // namespace trainer
