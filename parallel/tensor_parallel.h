#pragma once
/// Tensor parallelism: the ranks of a group work on the same tokens, each with its part of every matrix
/// (arXiv 1909.08053). A product cut along its outputs reads all tokens and needs no sum; the product after it, cut
/// along its inputs, gives every rank a part of a sum.
///
/// Between a sum and the next product (norms, residuals, dropout) every rank holds all tokens and does the same work,
/// or an equal part of the tokens and a part of the work (arXiv 2205.05198). The two functions below are all that
/// differs, and each is the other's gradient:
///
///                 gather_tokens   sum_parts
///   whole         nothing         all_reduce
///   sharded       all_gather      reduce_scatter

#include <vector>

#include "parallel/communicator.h"
#include "parallel/mesh.h"

namespace parallel {

/// Which tokens a rank holds between products.
enum class TokenSharding { whole, sharded };

/// What a layer is built with. Groups are borrowed.
struct TensorParallel {
  Communicator& tp;
  Communicator& kv_replicas;  ///< the tp ranks that hold the same kv heads
  TokenSharding tokens = TokenSharding::whole;

  /// Of the ranks that hold the same parameter, the one that counts and saves it.
  bool is_primary() const { return tp.rank() == 0; }
  /// ParameterSpec::partial_grad of a parameter that meets only the tokens held.
  Communicator* partial_over_tokens() const { return tokens == TokenSharding::sharded ? &tp : nullptr; }
};

/// x of the tokens held -> x of all tokens, in order. Takes x over, or looks at it.
tensor::Tensor gather_tokens(Communicator& tp, tensor::Tensor&& x, TokenSharding tokens);
tensor::Tensor gather_tokens(Communicator& tp, const tensor::Tensor& x, TokenSharding tokens);
/// Every rank's x of all tokens -> their sum, for the tokens held.
tensor::Tensor sum_parts(Communicator& tp, tensor::Tensor x, TokenSharding tokens);
/// The rows of the tokens held: a view. Sharding needs a number of tokens that tp divides.
tensor::Tensor held_tokens(const Communicator& tp, const tensor::Tensor& all, TokenSharding tokens);

/// Members of the kv_replicas group of `rank`, in order. The query heads of neighbouring tp ranks read the same kv head
/// where there are fewer kv heads than ranks; one of the two numbers divides the other.
std::vector<int> kv_replica_ranks(const Mesh& mesh, int rank, int64_t num_kv_heads);

}  // namespace parallel
