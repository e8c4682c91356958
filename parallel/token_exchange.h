#pragma once
/// Takes rows to the ranks that have their experts and back: two all-to-alls (arXiv 2006.16668).
///
/// Experts are shared out over the ranks of `ep`: rank i has [i, i + 1) * num_experts / ep. Where expert_tp ranks hold
/// parts of the same experts, each takes the rows of all of them: rows are gathered over expert_tp after they arrive,
/// and parts of results summed before they leave. The way back is the gradient of the way there, and the other way
/// round, so that the backward pass takes the same two ways.

#include <vector>

#include "parallel/communicator.h"
#include "tensor/ops.h"

namespace parallel {

class TokenExchange {
 public:
  /// Where the rows of one micro-batch go. Sorted rows: by expert, of one expert in the order of the ranks they are
  /// from.
  struct Route {
    std::vector<int64_t> sent;         ///< rows to each ep rank
    std::vector<int64_t> received;     ///< rows from each ep rank
    std::vector<int64_t> gathered;     ///< rows of each expert_tp rank
    std::vector<int64_t> expert_rows;  ///< rows of each expert here
    tensor::Tensor
        to_sorted;  ///< int32: the gathered row that is each sorted one; absent: one rank, whose rows are sorted
    tensor::Tensor to_gathered;  ///< int32: the other way round

    int64_t rows_sent() const;
    int64_t rows_here() const;
  };

  TokenExchange(Communicator& ep, Communicator& expert_tp, int64_t num_experts);

  int64_t first_expert() const { return ep_.rank() * experts_here(); }
  int64_t experts_here() const { return num_experts_ / ep_.size(); }

  /// counts[e]: rows that this rank sends to expert e. Exchanges what the other ranks send. On a device on paper
  /// nothing can be counted: as many rows are assumed to arrive as leave, for all experts alike.
  Route plan(const std::vector<int64_t>& counts, tensor::Device& device) const;

  /// rows [rows_sent, hidden] by expert -> sorted rows [rows_here, hidden]
  tensor::Tensor to_experts(tensor::Ops& ops, tensor::Tensor rows, const Route& route) const;
  /// sorted rows [rows_here, hidden], of which each expert_tp rank has a part of a sum -> [rows_sent, hidden]
  tensor::Tensor from_experts(tensor::Ops& ops, tensor::Tensor sorted, const Route& route) const;

 private:
  using Counts = std::vector<int32_t>;  // [expert_tp, ep, experts here]: rows from each rank for each expert here
  Counts exchange_counts(const std::vector<int64_t>& counts, tensor::Device& device) const;
  Counts assumed_counts(int64_t rows) const;
  void add_order(const Counts& counts, tensor::Device& device, Route& route) const;

  Communicator& ep_;
  Communicator& expert_tp_;
  int64_t num_experts_;
};

}  // namespace parallel
