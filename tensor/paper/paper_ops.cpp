#include "tensor/paper/paper_ops.h"

namespace tensor::paper {

namespace {

// A row may be seen as [hidden] or [heads, head_dim].
void check_same_shape(const Tensor& a, const Tensor& b) {
  CHECK(a.numel() == b.numel() && a.dim(0) == b.dim(0), "{} and {} are of one shape", a.shape().str(), b.shape().str());
}

void check_same_shape_or_absent(const Tensor& optional, const Tensor& x) {
  if (optional) check_same_shape(optional, x);
}

void check_numel(const Tensor& x, int64_t numel) {
  CHECK(x.numel() == numel, "{} holds {} elements", x.shape().str(), numel);
}

void check_numel_or_absent(const Tensor& optional, int64_t numel) {
  if (optional) check_numel(optional, numel);
}

void check_matrix(const Tensor& x, int64_t rows, int64_t columns) {
  CHECK(x.dim(0) == rows && x.shape().row_numel() == columns, "{} is a matrix [{}, {}]", x.shape().str(), rows,
        columns);
}

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& y) {
  check_matrix(x, y.dim(0), weight.shape().row_numel());
  check_matrix(y, x.dim(0), weight.dim(0));
}

/// weight, bias [last dim]; stats [rows, 2].
void check_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& stats) {
  const int64_t size = x.dim(-1);
  check_numel_or_absent(weight, size);
  check_numel_or_absent(bias, size);
  check_numel(stats, size == 0 ? 0 : x.numel() / size * 2);
}

void check_activation(Activation kind, const Tensor& x, const Tensor& y) {
  check_matrix(x, y.dim(0), (is_gated(kind) ? 2 : 1) * y.shape().row_numel());
}

void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, const Tensor& o,
                     const Tensor& lse) {
  check_same_shape(k, v);
  check_same_shape(q, o);
  check_numel(lse, q.dim(0) * q.dim(1));
  CHECK(q.dim(2) == k.dim(2) && k.dim(1) > 0 && q.dim(1) % k.dim(1) == 0, "heads of {} share those of {}",
        q.shape().str(), k.shape().str());
  CHECK(mask.num_sequences > 0 && q.dim(0) % mask.num_sequences == 0 && k.dim(0) % mask.num_sequences == 0,
        "{} and {} tokens are {} sequences", q.dim(0), k.dim(0), mask.num_sequences);
  check_numel(mask.query_positions, q.dim(0));
  check_numel(mask.first_visible, q.dim(0));
  check_numel(mask.key_positions, k.dim(0));
}

void check_rows(const Tensor& logits, const Tensor& a, const Tensor& b) {
  check_numel(a, logits.dim(0));
  check_numel(b, logits.dim(0));
}

}  // namespace

void PaperOps::gemm(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b, Tensor& c, Write) {
  const bool a_is_turned = transpose_a == Transpose::yes, b_is_turned = transpose_b == Transpose::yes;
  const int64_t a_columns = a.shape().row_numel(), b_columns = b.shape().row_numel();
  CHECK((a_is_turned ? a.dim(0) : a_columns) == (b_is_turned ? b_columns : b.dim(0)), "{} times {} share a dim",
        a.shape().str(), b.shape().str());
  check_matrix(c, a_is_turned ? a_columns : a.dim(0), b_is_turned ? b.dim(0) : b_columns);
}

void PaperOps::linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) {
  check_linear(x, weight, y);
  check_numel_or_absent(bias, weight.dim(0));
}

void PaperOps::linear_backward_input(const Tensor& dy, const Tensor& weight, Tensor& dx, Write) {
  check_linear(dx, weight, dy);
}

void PaperOps::linear_backward_weight(const Tensor& dy, const Tensor& x, Tensor& dweight, Tensor& dbias, Write) {
  check_linear(x, dweight, dy);
  check_numel_or_absent(dbias, dweight.dim(0));
}

void PaperOps::norm(const Norm&, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y, Tensor& stats) {
  check_norm(x, weight, bias, stats);
  check_same_shape(x, y);
}

void PaperOps::add_norm(const Norm&, const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                        Tensor& sum, Tensor& y, Tensor& stats) {
  check_norm(x, weight, bias, stats);
  check_same_shape(x, residual);
  check_same_shape(x, sum);
  check_same_shape(x, y);
}

void PaperOps::norm_backward_input(const Norm&, const Tensor& dy, const Tensor& x, const Tensor& weight,
                                   const Tensor& stats, Tensor& dx, Write) {
  check_norm(x, weight, {}, stats);
  check_same_shape(dy, x);
  check_same_shape(dx, x);
}

void PaperOps::norm_backward_weight(const Norm&, const Tensor& dy, const Tensor& x, const Tensor& stats,
                                    Tensor& dweight, Tensor& dbias, Write) {
  check_norm(x, dweight, dbias, stats);
  check_same_shape(dy, x);
}

void PaperOps::rope(Tensor& x, const Tensor& positions, const Tensor& table, Transpose) {
  check_numel(positions, x.dim(0));
  CHECK(table.dim(1) <= x.dim(-1), "table {} turns at most the head_dim of {}", table.shape().str(), x.shape().str());
}

void PaperOps::activation(Activation kind, const Tensor& x, Tensor& y) { check_activation(kind, x, y); }

void PaperOps::activation_backward(Activation kind, const Tensor& dy, const Tensor& x, Tensor& dx) {
  check_activation(kind, x, dy);
  check_same_shape(x, dx);
}

void PaperOps::attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, double,
                         Tensor& o, Tensor& lse) {
  check_attention(q, k, v, mask, o, lse);
}

void PaperOps::attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o, const Tensor& lse,
                                  const Tensor& d_o, const AttentionMask& mask, double, Tensor& dq, Tensor& dk,
                                  Tensor& dv) {
  check_attention(q, k, v, mask, o, lse);
  check_same_shape(o, d_o);
  check_same_shape(q, dq);
  check_same_shape(k, dk);
  check_same_shape(v, dv);
}

void PaperOps::merge_attention(const Tensor& block_o, const Tensor& block_lse, Tensor& o, Tensor& lse) {
  check_same_shape(block_o, o);
  check_same_shape(block_lse, lse);
  check_numel(lse, o.dim(0) * o.dim(1));
}

void PaperOps::embedding(const Tensor& indices, const Tensor& table, int64_t, Tensor& y, Write) {
  check_matrix(y, indices.numel(), table.shape().row_numel());
}

void PaperOps::embedding_backward(const Tensor& indices, const Tensor& dy, int64_t, Tensor& dtable, Write) {
  check_matrix(dy, indices.numel(), dtable.shape().row_numel());
}

void PaperOps::cross_entropy_max(const Tensor& logits, Tensor& row_max) { check_numel(row_max, logits.dim(0)); }

void PaperOps::cross_entropy_exp(Tensor& logits, const Tensor& row_max, const Tensor& targets, int64_t, Tensor& sum_exp,
                                 Tensor& target_logit) {
  check_rows(logits, row_max, targets);
  check_rows(logits, sum_exp, target_logit);
}

void PaperOps::cross_entropy_gradient(const Tensor& exp_logits, const Tensor& sum_exp, const Tensor& targets, int64_t,
                                      double, Tensor& dlogits) {
  check_rows(exp_logits, sum_exp, targets);
  check_same_shape(exp_logits, dlogits);
}

double PaperOps::cross_entropy_loss(const Tensor& sum_exp, const Tensor& target_logit, const Tensor& targets) {
  check_rows(sum_exp, target_logit, targets);
  return 0;
}

void PaperOps::router(const Router& router, const Tensor& logits, const Tensor& bias, Tensor& ids, Tensor& weights) {
  check_numel_or_absent(bias, logits.dim(1));
  check_matrix(ids, logits.dim(0), router.top_k);
  check_matrix(weights, logits.dim(0), router.top_k);
}

void PaperOps::router_sums(const Router& router, const Tensor& logits, const Tensor& ids, const SequenceRows& rows,
                           Tensor& sums) {
  check_matrix(ids, logits.dim(0), router.top_k);
  check_numel(sums, 2 * rows.num_sequences * logits.dim(1));
}

double PaperOps::router_z(const Tensor&) { return 0; }

void PaperOps::router_backward(const Router& router, const Tensor& logits, const Tensor& ids, const Tensor& dweights,
                               const RouterLosses& losses, const SequenceRows& rows, Tensor& dlogits) {
  check_matrix(ids, logits.dim(0), router.top_k);
  check_matrix(dweights, logits.dim(0), router.top_k);
  check_numel_or_absent(losses.counts, rows.num_sequences * logits.dim(1));
  check_same_shape(logits, dlogits);
}

void PaperOps::combine(const Tensor& from, const Tensor& places, const Tensor& weights, Tensor& y) {
  check_matrix(y, places.dim(0), from.dim(1));
  check_same_shape_or_absent(weights, places);
}

void PaperOps::combine_backward(const Tensor& dy, const Tensor& from, const Tensor& places, const Tensor& weights,
                                Tensor& dfrom, Tensor& dweights) {
  check_matrix(dy, places.dim(0), from.dim(1));
  check_same_shape(from, dfrom);
  check_same_shape(weights, places);
  check_same_shape(dweights, places);
}

void PaperOps::dropout_add(const Dropout&, const Tensor& x, const Tensor& residual, const Tensor& token_index,
                           Tensor& y) {
  check_same_shape(x, y);
  check_same_shape_or_absent(residual, x);
  if (token_index) check_numel(token_index, x.dim(0));
}

void PaperOps::add(const Tensor& a, const Tensor& b, Tensor& y) {
  check_same_shape(a, y);
  check_same_shape(b, y);
}

void PaperOps::cast(const Tensor& x, Tensor& y) { check_same_shape(x, y); }

void PaperOps::adamw(const AdamW&, const Tensor& grad, Tensor& master, Tensor& exp_avg, Tensor& exp_avg_sq,
                     Tensor& value) {
  for (const Tensor* x : {&grad, static_cast<const Tensor*>(&exp_avg), static_cast<const Tensor*>(&exp_avg_sq)}) {
    check_numel(*x, master.numel());
  }
  check_numel_or_absent(value, master.numel());
}

void PaperOps::balance(double, double, const Tensor& counts, Tensor& master, Tensor& value) {
  check_numel(counts, master.numel());
  check_numel_or_absent(value, master.numel());
}

double PaperOps::max_abs(const Tensor& x) {
  CHECK(x.is_contiguous(), "a flat buffer, unlike {}", x.shape().str());
  return 0;
}

ExactSum PaperOps::sum_of_squares(const Tensor& x, double max_abs) {
  CHECK(x.is_contiguous(), "a flat buffer, unlike {}", x.shape().str());
  return ExactSum(max_abs);
}

}  // namespace tensor::paper
