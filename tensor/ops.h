#pragma once
/// Every operation on tensors, with shapes. This header is the contract between the model and the backends:
/// tensor/cpu implements it (and is the reference), tensor/cuda is tested against that, operation by operation.
///
/// Conventions
///   tokens          packed: sequences of a micro-batch one after another, [tokens, hidden]
///   dtype           operands share the model's dtype (fp32, bf16, fp64) unless said; bf16 computes in fp32
///   acc             accumulator_of(dtype): fp64 for fp64, else fp32
///   gradients       dx is dL/dx; `Write::accumulate` adds to what is there, `overwrite` does not read it
///   absent operand  a default Tensor (no bias, no residual)
///   rows            operands of rank >= 2 may have rows that lie apart (row_stride) where the comment says "strided"
/// The same call gives bitwise the same result run after run, for any number of threads; but for large matrix products,
/// whose sums BLAS may cut elsewhere for another number of threads.
/// Empty inputs (0 tokens) are valid everywhere: weight gradients then become 0 under `overwrite`.

#include <memory>

#include "tensor/device.h"
#include "tensor/exact_sum.h"
#include "tensor/tensor.h"

namespace tensor {

enum class Write { overwrite, accumulate };
enum class Transpose { no, yes };

enum class NormKind { layer_norm, rms_norm };
struct Norm {
  NormKind kind = NormKind::rms_norm;
  double eps = 1e-5;
};

/// swiglu and geglu (tanh form of GELU) are gated: their input is [gate | up], twice as wide as their output.
enum class Activation { gelu_tanh, gelu_erf, relu_squared, swiglu, geglu };
constexpr bool is_gated(Activation kind) { return kind == Activation::swiglu || kind == Activation::geglu; }

/// Which keys a query sees: key_positions[j] in [first_visible[i], query_positions[i]], inside its own sequence.
/// first_visible carries document boundaries and the sliding window; positions are global, so that a rank may hold
/// any part of a sequence. Tokens of sequence s are the s-th equal part of the rows.
struct AttentionMask {
  int64_t num_sequences = 1;
  const Tensor& query_positions;  ///< int32 [query_tokens]
  const Tensor& first_visible;    ///< int32 [query_tokens]
  const Tensor& key_positions;    ///< int32 [key_tokens]
};

/// Dropout draws from Philox by (seed, step, site, token index, feature): any layout draws the same mask.
struct Dropout {
  double probability = 0;  ///< of zeroing an element; the rest is scaled by 1 / (1 - probability)
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t site = 0;  ///< which dropout of the model: layer and place
};

struct AdamW {
  double lr = 0;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0;  ///< decoupled: p -= lr * weight_decay * p
  int64_t step = 1;         ///< counts from 1, for the bias corrections 1 - beta^step
  double grad_scale = 1;    ///< gradients are multiplied by this first (global-norm clipping)
};

enum class RouterScore { softmax, sigmoid };

/// How a router chooses experts by their scores. Of equal ones the first is the better.
struct Router {
  RouterScore score = RouterScore::softmax;
  int64_t top_k = 1;
  bool normalize = false;  ///< the weights of the chosen add up to `scaling`; else each is its score * scaling
  double scaling = 1;
  int64_t num_groups = 1;    ///< neighbouring experts, equally many; a group is as good as its two best together
  int64_t top_k_groups = 1;  ///< experts of the best groups only are chosen; num_groups: of all
};

/// Rows of a micro-batch, whose sequences are equally many rows each, one after another.
struct SequenceRows {
  int64_t first_row = 0;  ///< of the micro-batch: what row 0 of the operands is
  int64_t rows_per_sequence = 1;
  int64_t num_sequences = 1;

  int64_t sequence_of(int64_t row) const { return (first_row + row) / rows_per_sequence; }
};

/// What a router's gradient has beside that of its weights.
struct RouterLosses {
  /// acc [num_sequences, num_experts]: per token of a sequence, scale_of_counts * counts is the gradient of the tokens'
  /// shares, which are its scores divided by their sum. Absent: none.
  const Tensor& counts;
  double scale_of_counts = 0;
  double scale_of_z = 0;  ///< of the sum over tokens of (log sum exp of the logits)^2
};

class Ops {
 public:
  explicit Ops(Device& device) : device_(device) {}
  virtual ~Ops() = default;
  Device& device() const { return device_; }

  // ---- matrix products -------------------------------------------------------------------------------------------
  /// c [m, n] (+)= op(a) [m, k] * op(b) [k, n]. Strided. Operands may differ in dtype (c in fp32 for bf16 factors).
  virtual void gemm(const Tensor& a, Transpose transpose_a, const Tensor& b, Transpose transpose_b, Tensor& c,
                    Write write) = 0;
  /// y [tokens, out] = x [tokens, in] * weight [out, in]^T + bias [out] or absent.
  virtual void linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) = 0;
  /// dx [tokens, in] (+)= dy [tokens, out] * weight [out, in].
  virtual void linear_backward_input(const Tensor& dy, const Tensor& weight, Tensor& dx, Write write) = 0;
  /// dweight [out, in] (+)= dy^T * x; dbias [out] (+)= sum of dy over tokens, or absent. Gradients may be fp32 where
  /// the model is bf16.
  virtual void linear_backward_weight(const Tensor& dy, const Tensor& x, Tensor& dweight, Tensor& dbias,
                                      Write write) = 0;

  // ---- norms over the last dim: LayerNorm (arXiv 1607.06450), RMSNorm (arXiv 1910.07467) --------------------------
  // x [tokens, hidden] or [tokens, heads, head_dim], strided; weight [last dim]; bias [last dim] or absent.
  // stats acc [rows, 2]: mean (0 for RMSNorm) and 1 / deviation of each normalised row.
  virtual void norm(const Norm& norm, const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y,
                    Tensor& stats) = 0;
  /// sum = x + residual; y = norm(sum), in one pass.
  virtual void add_norm(const Norm& norm, const Tensor& x, const Tensor& residual, const Tensor& weight,
                        const Tensor& bias, Tensor& sum, Tensor& y, Tensor& stats) = 0;
  /// dx (+)= gradient through the norm; `accumulate` is how the residual's gradient joins. dx may alias dy.
  virtual void norm_backward_input(const Norm& norm, const Tensor& dy, const Tensor& x, const Tensor& weight,
                                   const Tensor& stats, Tensor& dx, Write write) = 0;
  virtual void norm_backward_weight(const Norm& norm, const Tensor& dy, const Tensor& x, const Tensor& stats,
                                    Tensor& dweight, Tensor& dbias, Write write) = 0;

  // ---- rotary position embedding (arXiv 2104.09864), in place -----------------------------------------------------
  /// Rotates the pairs (i, i + rotary_dim / 2) of the first rotary_dim features of each head by the angle of the
  /// token's position; the rest passes. x [tokens, heads, head_dim] strided; positions int32 [tokens];
  /// table acc [max_position, rotary_dim] holds cos then sin. `Transpose::yes` rotates back (the backward pass).
  virtual void rope(Tensor& x, const Tensor& positions, const Tensor& table, Transpose transpose) = 0;

  // ---- activations ------------------------------------------------------------------------------------------------
  /// y [tokens, ffn] = f(x); x is [tokens, ffn], or [tokens, 2 * ffn] = gate | up for gated kinds.
  virtual void activation(Activation kind, const Tensor& x, Tensor& y) = 0;
  virtual void activation_backward(Activation kind, const Tensor& dy, const Tensor& x, Tensor& dx) = 0;

  // ---- attention, blocked: no score matrix is ever stored (arXiv 2205.14135) --------------------------------------
  /// q, o [query_tokens, heads, head_dim]; k, v [key_tokens, kv_heads, head_dim], all strided; head h reads kv head
  /// h / (heads / kv_heads). lse acc [query_tokens, heads] = log sum exp of the scaled scores. A query that sees no
  /// key gives o = 0 and lse = -inf.
  virtual void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask, double scale,
                         Tensor& o, Tensor& lse) = 0;
  /// Overwrites dq, dk, dv (strided, shapes of q, k, v).
  virtual void attention_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o, const Tensor& lse,
                                  const Tensor& d_o, const AttentionMask& mask, double scale, Tensor& dq, Tensor& dk,
                                  Tensor& dv) = 0;
  /// Attention over two sets of keys, from that over each: block_o and block_lse (which attention() made) join o and
  /// lse. o acc [query_tokens, heads, head_dim], contiguous like all operands. Sets that nobody sees change nothing.
  virtual void merge_attention(const Tensor& block_o, const Tensor& block_lse, Tensor& o, Tensor& lse) = 0;

  // ---- embedding --------------------------------------------------------------------------------------------------
  /// y [tokens, hidden] (+)= table [rows, hidden] at row indices[i] - first_row; indices int32 [tokens]. An index
  /// outside the table's rows (another rank owns it) contributes 0.
  virtual void embedding(const Tensor& indices, const Tensor& table, int64_t first_row, Tensor& y, Write write) = 0;
  /// dtable gathers dy, each row in token order. `overwrite` zeroes it first.
  virtual void embedding_backward(const Tensor& indices, const Tensor& dy, int64_t first_row, Tensor& dtable,
                                  Write write) = 0;

  // ---- softmax cross-entropy over a chunk of logits, in steps that vocabulary-parallel ranks reduce in between -----
  // logits acc [rows, vocab] (this rank's columns, of which the first is global column first_column); targets int32
  // [rows], global, negative = ignored. row_max, sum_exp, target_logit acc [rows].
  virtual void cross_entropy_max(const Tensor& logits, Tensor& row_max) = 0;
  /// logits become exp(logits - row_max); sum_exp their sum; target_logit = logit - row_max, 0 where not this rank's.
  virtual void cross_entropy_exp(Tensor& logits, const Tensor& row_max, const Tensor& targets, int64_t first_column,
                                 Tensor& sum_exp, Tensor& target_logit) = 0;
  /// dlogits = scale * (exp_logits / sum_exp - one_hot(target)); 0 for ignored rows. dlogits has the model's dtype and
  /// may be exp_logits itself.
  virtual void cross_entropy_gradient(const Tensor& exp_logits, const Tensor& sum_exp, const Tensor& targets,
                                      int64_t first_column, double scale, Tensor& dlogits) = 0;
  /// Sum of log(sum_exp) - target_logit over the rows that are not ignored, in fp64, in row order.
  virtual double cross_entropy_loss(const Tensor& sum_exp, const Tensor& target_logit, const Tensor& targets) = 0;

  // ---- routing to experts ------------------------------------------------------------------------------------------
  // logits acc [tokens, experts]; ids int32 [tokens, top_k], the chosen, best first; weights acc [tokens, top_k].
  /// Chooses by score + bias (acc [experts] or absent), weighs by score alone.
  virtual void router(const Router& router, const Tensor& logits, const Tensor& bias, Tensor& ids, Tensor& weights) = 0;
  /// sums acc [2, sequences, experts]: how often the rows of each sequence chose an expert, and the sum of its shares
  /// of their scores (which add up to 1 per row).
  virtual void router_sums(const Router& router, const Tensor& logits, const Tensor& ids, const SequenceRows& rows,
                           Tensor& sums) = 0;
  /// Sum over rows of (log sum exp of the logits)^2, in fp64, in row order. Synchronizes.
  virtual double router_z(const Tensor& logits) = 0;
  /// dlogits = gradient through weights and losses; what was chosen is constant.
  virtual void router_backward(const Router& router, const Tensor& logits, const Tensor& ids, const Tensor& dweights,
                               const RouterLosses& losses, const SequenceRows& rows, Tensor& dlogits) = 0;

  // from [rows, hidden]; places int32 [tokens, top_k], the row of `from` that is each choice, negative: none.
  /// y [tokens, hidden] = sum of weights * rows over the choices, in their order. weights absent: all 1.
  virtual void combine(const Tensor& from, const Tensor& places, const Tensor& weights, Tensor& y) = 0;
  /// dfrom = weights * dy at each choice's row (each row is one choice's); dweights = <dy, from>, 0 where there is
  /// none. dfrom may be `from`.
  virtual void combine_backward(const Tensor& dy, const Tensor& from, const Tensor& places, const Tensor& weights,
                                Tensor& dfrom, Tensor& dweights) = 0;

  // ---- elementwise ------------------------------------------------------------------------------------------------
  /// y = dropout(x) + residual (or absent). x [tokens, features]; token_index int64 [tokens], the token's place in the
  /// step's global batch. Its backward is itself without the residual. y may alias x or residual.
  virtual void dropout_add(const Dropout& dropout, const Tensor& x, const Tensor& residual, const Tensor& token_index,
                           Tensor& y) = 0;
  virtual void add(const Tensor& a, const Tensor& b, Tensor& y) = 0;  ///< strided; y may alias a or b
  virtual void cast(const Tensor& x, Tensor& y) = 0;                  ///< same shape, any two floating dtypes

  // ---- optimizer, over flat buffers -------------------------------------------------------------------------------
  /// One pass of decoupled AdamW (arXiv 1711.05101). master, exp_avg, exp_avg_sq and grad share one dtype (fp32 or
  /// fp64); value is the master rounded to the model's dtype, or absent where the model computes on the master.
  virtual void adamw(const AdamW& adamw, const Tensor& grad, Tensor& master, Tensor& exp_avg, Tensor& exp_avg_sq,
                     Tensor& value) = 0;
  /// Moves the bias of each expert by `rate` towards where its count of tokens becomes `mean`: value += rate *
  /// sign(mean - count). counts and master acc (fp32 or fp64); value as for adamw.
  virtual void balance(double rate, double mean, const Tensor& counts, Tensor& master, Tensor& value) = 0;
  /// Largest |x|, 0 for an empty x; NaN if any element is. Synchronizes.
  virtual double max_abs(const Tensor& x) = 0;
  /// Sum of x^2, the same bits for every cut of the same elements. `max_abs` is the largest |element| over all parts
  /// of the sum (an all_reduce of their max_abs); below the largest of x, the result is undefined. Synchronizes.
  virtual ExactSum sum_of_squares(const Tensor& x, double max_abs) = 0;

 private:
  Device& device_;
};

/// A device and the operations on it.
struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
};

struct CpuOptions {
  int num_threads = 0;  ///< 0: the cores this process may use, divided by the ranks that share them
  int ranks_on_node = 1;
};
Backend make_cpu_backend(const CpuOptions& options = {});

/// Moves and computes nothing, and counts all memory: the program's step on it, with communicators on paper, is a dry
/// run of any size. Losses and norms are 0; copies to the host give zeros; shapes are checked.
Backend make_paper_backend();

}  // namespace tensor
