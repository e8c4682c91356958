#pragma once
/// DeepSpeed-Ulysses (arXiv 2309.14509): ranks exchange their tokens for heads, so that each attends over whole
/// sequences with some of the heads, and exchange back.

#include <vector>

#include "model/sequence_attention.h"

namespace model {

/// Heads that a rank attends with: all of its q heads read the same number of q heads per kv head, or one kv head.
struct HeadShare {
  int64_t first_q = 0, num_q = 0;
  int64_t first_kv = 0, num_kv = 0;
  bool operator==(const HeadShare&) const = default;
};

/// Whole kv heads with the q heads that read them, as evenly as they go; where there are fewer kv heads than ranks,
/// neighbouring ranks hold copies of a kv head and share out its q heads. At least one q head for each of `size` ranks.
HeadShare head_share(const AttentionHeads& heads, int rank, int size);

class UlyssesAttention final : public SequenceAttention {
 public:
  UlyssesAttention(const AttentionHeads& heads, parallel::Communicator& sp);

  tensor::Tensor forward(tensor::Ops& ops, tensor::Tensor qkv, const MicroBatch& batch, Saved& saved) const override;
  tensor::Tensor backward(tensor::Ops& ops, const tensor::Tensor& o, const tensor::Tensor& d_o, const MicroBatch& batch,
                          Saved& saved) const override;

 private:
  /// Columns [begin, end) of a fused tensor.
  struct Columns {
    int64_t begin = 0;
    int64_t end = 0;
  };
  using Parts = std::vector<std::vector<Columns>>;  ///< by rank: what it gets of every token

  int64_t width_for(const Parts& parts, int rank) const;
  /// This rank's tokens [tokens, all columns] -> all tokens in sequence [whole, the columns of this rank].
  tensor::Tensor to_heads(const tensor::Tensor& x, const Parts& parts, const MicroBatch& batch) const;
  /// Back: the columns that several ranks have are added up.
  tensor::Tensor to_tokens(tensor::Ops& ops, const tensor::Tensor& x, const Parts& parts,
                           const MicroBatch& batch) const;
  std::vector<int64_t> rows_by_rank(const Parts& parts, int64_t tokens) const;
  tensor::AttentionMask mask(const MicroBatch& batch) const;

  AttentionHeads heads_;  // of this rank's tokens
  AttentionHeads own_;    // those that this rank attends with
  parallel::Communicator& sp_;
  Parts q_, qkv_;
};

}  // namespace model
