#include "parallel/tensor_parallel.h"

#include <algorithm>

#include "tensor/device.h"

namespace parallel {

using tensor::MemoryCategory;
using tensor::Tensor;

namespace {

Tensor with_rows(const Tensor& x, int64_t rows) {
  return x.device().allocate(x.shape().with(0, rows), x.dtype(), MemoryCategory::activations);
}

int64_t held_count(const Communicator& tp, int64_t num_tokens) {
  CHECK(num_tokens % tp.size() == 0, "{} tokens fall into {} equal parts", num_tokens, tp.size());
  return num_tokens / tp.size();
}

Tensor gathered(Communicator& tp, const Tensor& x) {
  Tensor all = with_rows(x, x.dim(0) * tp.size());
  tp.all_gather(x, all).wait();
  return all;
}

}  // namespace

Tensor gather_tokens(Communicator& tp, Tensor&& x, TokenSharding tokens) {
  return tokens == TokenSharding::whole ? std::move(x) : gathered(tp, x);
}

Tensor gather_tokens(Communicator& tp, const Tensor& x, TokenSharding tokens) {
  return tokens == TokenSharding::whole ? x.view() : gathered(tp, x);
}

Tensor sum_parts(Communicator& tp, Tensor x, TokenSharding tokens) {
  if (tokens == TokenSharding::whole) {
    tp.all_reduce(x, Reduction::sum).wait();
    return x;
  }
  Tensor held = with_rows(x, held_count(tp, x.dim(0)));
  tp.reduce_scatter(x, held).wait();
  return held;
}

Tensor held_tokens(const Communicator& tp, const Tensor& all, TokenSharding tokens) {
  if (tokens == TokenSharding::whole) return all.view();
  const int64_t count = held_count(tp, all.dim(0));
  return all.rows(tp.rank() * count, (tp.rank() + 1) * count);
}

std::vector<int> kv_replica_ranks(const Mesh& mesh, int rank, int64_t num_kv_heads) {
  const std::vector<int> tp = mesh.group(Group::tp, rank);
  const auto size = static_cast<int64_t>(tp.size());
  CHECK(size % num_kv_heads == 0 || num_kv_heads % size == 0, "{} tp ranks and {} kv heads: one divides the other",
        size, num_kv_heads);
  const int64_t copies = std::max<int64_t>(1, size / num_kv_heads);
  const int64_t place = std::find(tp.begin(), tp.end(), rank) - tp.begin();
  const auto first = tp.begin() + place / copies * copies;
  return {first, first + copies};
}

}  // namespace parallel
