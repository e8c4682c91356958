#include "parallel/token_exchange.h"

#include <numeric>

#include "tensor/device.h"

namespace parallel {

using tensor::Device;
using tensor::Dtype;
using tensor::MemoryCategory;
using tensor::Ops;
using tensor::Tensor;

namespace {

Tensor with_rows(const Tensor& x, int64_t rows) {
  return x.device().allocate(x.shape().with(0, rows), x.dtype(), MemoryCategory::activations);
}

int64_t sum_of(const std::vector<int64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

Tensor upload(const std::vector<int32_t>& host, Device& device) {
  Tensor x = device.allocate({std::ssize(host)}, Dtype::int32, MemoryCategory::activations);
  device.copy_from_host(host.data(), x);
  return x;
}

/// y = rows `order` of x.
Tensor reordered(Ops& ops, const Tensor& x, const Tensor& order) {
  Tensor y = with_rows(x, order.dim(0));
  ops.embedding(order, x, 0, y, tensor::Write::overwrite);
  return y;
}

}  // namespace

int64_t TokenExchange::Route::rows_sent() const { return sum_of(sent); }
int64_t TokenExchange::Route::rows_here() const { return sum_of(expert_rows); }

TokenExchange::TokenExchange(Communicator& ep, Communicator& expert_tp, int64_t num_experts)
    : ep_(ep), expert_tp_(expert_tp), num_experts_(num_experts) {
  CHECK(num_experts % ep.size() == 0, "{} ranks share {} experts out", ep.size(), num_experts);
}

TokenExchange::Route TokenExchange::plan(const std::vector<int64_t>& counts, Device& device) const {
  CHECK(std::ssize(counts) == num_experts_, "{} counts for {} experts", counts.size(), num_experts_);
  const Counts all = exchange_counts(counts, device);
  const auto here = static_cast<size_t>(experts_here()), from_rank = static_cast<size_t>(ep_.size()) * here;
  Route route;
  route.received.assign(static_cast<size_t>(ep_.size()), 0);
  route.gathered.assign(static_cast<size_t>(expert_tp_.size()), 0);
  route.expert_rows.assign(here, 0);
  for (size_t i = 0; i < counts.size(); ++i) {
    if (i % here == 0) route.sent.push_back(0);
    route.sent.back() += counts[i];
  }
  for (size_t i = 0; i < all.size(); ++i) {
    route.gathered[i / from_rank] += all[i];
    route.expert_rows[i % here] += all[i];
    const bool is_own = i / from_rank == static_cast<size_t>(expert_tp_.rank());
    if (is_own) route.received[i % from_rank / here] += all[i];
  }
  add_order(all, device, route);
  return route;
}

TokenExchange::Counts TokenExchange::exchange_counts(const std::vector<int64_t>& counts, Device& device) const {
  const std::vector<int64_t> rows(static_cast<size_t>(ep_.size()), experts_here());
  const Tensor sent = upload({counts.begin(), counts.end()}, device);
  Tensor received = device.allocate({num_experts_}, Dtype::int32, MemoryCategory::activations);
  ep_.all_to_all_v(sent, rows, received, rows).wait();
  Tensor all = device.allocate({expert_tp_.size() * num_experts_}, Dtype::int32, MemoryCategory::activations);
  expert_tp_.all_gather(received, all).wait();
  if (device.kind() == tensor::DeviceKind::paper) return assumed_counts(sum_of(counts));
  Counts host(static_cast<size_t>(all.numel()));
  device.copy_to_host(all, host.data());
  return host;
}

TokenExchange::Counts TokenExchange::assumed_counts(int64_t rows) const {
  Counts counts;
  for (int64_t rank = 0; rank < expert_tp_.size(); ++rank) {
    for (int64_t i = 0; i < num_experts_; ++i) {
      counts.push_back(static_cast<int32_t>(rows * (i + 1) / num_experts_ - rows * i / num_experts_));
    }
  }
  return counts;
}

void TokenExchange::add_order(const Counts& counts, Device& device, Route& route) const {
  const auto here = static_cast<size_t>(experts_here());
  if (counts.size() == here) return;                 // one rank: sent in order of experts
  std::vector<int64_t> begin(counts.size() + 1, 0);  // of each rank's rows for each expert, gathered
  std::partial_sum(counts.begin(), counts.end(), begin.begin() + 1, std::plus<int64_t>());
  std::vector<int32_t> to_sorted, to_gathered(static_cast<size_t>(begin.back()));
  to_sorted.reserve(to_gathered.size());
  for (size_t expert = 0; expert < here; ++expert) {
    for (size_t i = expert; i < counts.size(); i += here) {
      for (int64_t row = begin[i]; row < begin[i + 1]; ++row) {
        to_gathered[static_cast<size_t>(row)] = static_cast<int32_t>(to_sorted.size());
        to_sorted.push_back(static_cast<int32_t>(row));
      }
    }
  }
  route.to_sorted = upload(to_sorted, device);
  route.to_gathered = upload(to_gathered, device);
}

Tensor TokenExchange::to_experts(Ops& ops, Tensor rows, const Route& route) const {
  if (!route.to_sorted) return rows;
  Tensor arrived = with_rows(rows, sum_of(route.received));
  ep_.all_to_all_v(rows, route.sent, arrived, route.received, Counted::sent).wait();
  if (expert_tp_.size() > 1) {
    Tensor gathered = with_rows(rows, sum_of(route.gathered));
    expert_tp_.all_gather_v(arrived, gathered, route.gathered).wait();
    arrived = std::move(gathered);
  }
  return reordered(ops, arrived, route.to_sorted);
}

Tensor TokenExchange::from_experts(Ops& ops, Tensor sorted, const Route& route) const {
  if (!route.to_gathered) return sorted;
  Tensor arrived = reordered(ops, sorted, route.to_gathered);
  sorted = {};
  if (expert_tp_.size() > 1) {
    Tensor own = with_rows(arrived, sum_of(route.received));
    expert_tp_.reduce_scatter_v(arrived, own, route.gathered).wait();
    arrived = std::move(own);
  }
  Tensor back = with_rows(arrived, route.rows_sent());
  ep_.all_to_all_v(arrived, route.received, back, route.sent, Counted::received).wait();
  return back;
}

}  // namespace parallel
