#pragma once
/// The CPU backend's operations: OpenMP and SIMD over templates on the element type, OpenBLAS for large products.
/// Implementations are grouped by subject: gemm.cpp, norm.cpp, rope.cpp, activation.cpp, attention.cpp,
/// embedding.cpp, cross_entropy.cpp, router.cpp, combine.cpp, elementwise.cpp, optimizer.cpp, exact_sum.cpp.

#include "tensor/ops.h"

namespace tensor::cpu {

class CpuOps final : public Ops {
 public:
  using Ops::Ops;

  void gemm(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b, Tensor& c,
            Write write) override;
  void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) override;
  void linear_backward_input(const Tensor& dy, const Tensor& weight, Tensor& dx, Write write) override;
  void linear_backward_weight(const Tensor& dy, const Tensor& x, Tensor& dweight, Tensor& dbias, Write write) override;

  void norm(const Norm& norm, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y,
            Tensor& stats) override;
  void add_norm(const Norm& norm, const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                Tensor& sum, Tensor& y, Tensor& stats) override;
  void norm_backward_input(const Norm& norm, const Tensor& dy, const Tensor& x, const Tensor& weight,
                           const Tensor& stats, Tensor& dx, Write write) override;
  void norm_backward_weight(const Norm& norm, const Tensor& dy, const Tensor& x, const Tensor& stats, Tensor& dweight,
                            Tensor& dbias, Write write) override;

  void rope(Tensor& x, const Tensor& positions, const Tensor& table, Transpose transpose) override;

  void activation(Activation kind, const Tensor& x, Tensor& y) override;
  void activation_backward(Activation kind, const Tensor& dy, const Tensor& x, Tensor& dx) override;

  void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, double scale, Tensor& o,
                 Tensor& lse) override;
  void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o, const Tensor& lse,
                          const Tensor& d_o, const AttentionMask& mask, double scale, Tensor& dq, Tensor& dk,
                          Tensor& dv) override;
  void merge_attention(const Tensor& block_o, const Tensor& block_lse, Tensor& o, Tensor& lse) override;

  void embedding(const Tensor& indices, const Tensor& table, int64_t first_row, Tensor& y, Write write) override;
  void embedding_backward(const Tensor& indices, const Tensor& dy, int64_t first_row, Tensor& dtable,
                          Write write) override;

  void cross_entropy_max(const Tensor& logits, Tensor& row_max) override;
  void cross_entropy_exp(Tensor& logits, const Tensor& row_max, const Tensor& targets, int64_t first_column,
                         Tensor& sum_exp, Tensor& target_logit) override;
  void cross_entropy_gradient(const Tensor& exp_logits, const Tensor& sum_exp, const Tensor& targets,
                              int64_t first_column, double scale, Tensor& dlogits) override;
  double cross_entropy_loss(const Tensor& sum_exp, const Tensor& target_logit, const Tensor& targets) override;

  void router(const Router& router, const Tensor& logits, const Tensor& bias, Tensor& ids, Tensor& weights) override;
  void router_sums(const Router& router, const Tensor& logits, const Tensor& ids, const SequenceRows& rows,
                   Tensor& sums) override;
  double router_z(const Tensor& logits) override;
  void router_backward(const Router& router, const Tensor& logits, const Tensor& ids, const Tensor& dweights,
                       const RouterLosses& losses, const SequenceRows& rows, Tensor& dlogits) override;
  void combine(const Tensor& from, const Tensor& places, const Tensor& weights, Tensor& y) override;
  void combine_backward(const Tensor& dy, const Tensor& from, const Tensor& places, const Tensor& weights,
                        Tensor& dfrom, Tensor& dweights) override;

  void dropout_add(const Dropout& dropout, const Tensor& x, const Tensor& residual, const Tensor& token_index,
                   Tensor& y) override;
  void add(const Tensor& a, const Tensor& b, Tensor& y) override;
  void cast(const Tensor& x, Tensor& y) override;

  void adamw(const AdamW& adamw, const Tensor& grad, Tensor& master, Tensor& exp_avg, Tensor& exp_avg_sq,
             Tensor& value) override;
  void balance(double rate, double mean, const Tensor& counts, Tensor& master, Tensor& value) override;
  double max_abs(const Tensor& x) override;
  ExactSum sum_of_squares(const Tensor& x, double max_abs) override;
};

}  // namespace tensor::cpu
