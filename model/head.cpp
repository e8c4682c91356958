#include "model/head.h"

#include <algorithm>

#include "model/allocate.h"
#include "model/embedding.h"

namespace model {

using parallel::Reduction;
using parallel::Slice;
using tensor::MemoryCategory;
using tensor::Ops;
using tensor::Tensor;
using tensor::Transpose;
using tensor::Write;

namespace {

/// Tokens of one chunk: enough rows for the products to run at full speed, few enough for the logits to stay small.
constexpr int64_t kChunkTokens = 512;

Tensor scratch(const Tensor& like, tensor::Shape shape) {
  return like.device().allocate(shape, accumulator_of(like.dtype()), MemoryCategory::workspace);
}

}  // namespace

struct Head::Chunk {
  Tensor normed;   // [rows, hidden]
  Tensor targets;  // int32 [rows]
  double grad_scale;
};

Head::Head(const ModelConfig& config, parallel::Parameter& table, const parallel::TensorParallel& tensor_parallel,
           parallel::ParameterStore& store)
    : norm_(hidden_norm(config, "final_norm", tensor_parallel), store), tp_(tensor_parallel.tp), table_(&table) {}

double Head::forward(Ops& ops, Tensor x, const MicroBatch& batch, const StageContext& context, Saved& saved) const {
  saved.x = std::move(x);
  saved.stats = statistics_like(saved.x, {saved.x.dim(0), 2});
  Tensor held = activation_like(saved.x, saved.x.shape());
  norm_.forward(ops, saved.x, held, saved.stats);
  const Tensor normed = gather_tokens(tp_, std::move(held), context.tokens);
  const bool is_training = context.mode == Mode::train;
  Tensor d_normed = is_training ? activation_like(normed, normed.shape()) : Tensor();

  double loss = 0;
  const int64_t num_tokens = normed.dim(0);
  for (int64_t begin = 0; begin < num_tokens; begin += kChunkTokens) {
    const int64_t end = std::min(num_tokens, begin + kChunkTokens);
    const Chunk chunk = {normed.rows(begin, end), batch.targets.rows(begin, end), batch.grad_scale};
    Tensor d_chunk = is_training ? d_normed.rows(begin, end) : Tensor();
    loss += forward_chunk(ops, chunk, context.mode, d_chunk);
  }
  if (is_training) saved.d_normed = sum_parts(tp_, std::move(d_normed), context.tokens);
  return loss;
}

double Head::forward_chunk(Ops& ops, const Chunk& chunk, Mode mode, Tensor& d_normed) const {
  const int64_t rows = chunk.normed.dim(0), first_column = table_->spec().slice->begin;
  const Tensor weight = without_padding(table_->value());
  Tensor logits = scratch(chunk.normed, {rows, weight.dim(0)});
  Tensor row_max = scratch(chunk.normed, {rows});
  Tensor sums = scratch(chunk.normed, {2, rows});  // one message for both
  Tensor sum_exp = sums.rows(0, 1).reshaped({rows}), target_logit = sums.rows(1, 2).reshaped({rows});
  ops.gemm(chunk.normed, Transpose::no, weight, Transpose::yes, logits, Write::overwrite);
  ops.cross_entropy_max(logits, row_max);
  tp_.all_reduce(row_max, Reduction::max).wait();
  ops.cross_entropy_exp(logits, row_max, chunk.targets, first_column, sum_exp, target_logit);
  tp_.all_reduce(sums, Reduction::sum).wait();
  const double loss = ops.cross_entropy_loss(sum_exp, target_logit, chunk.targets);
  if (mode == Mode::evaluate) return loss;

  // bf16 models multiply bf16 gradients; elsewhere the gradient takes the place of the logits.
  const bool in_place = weight.dtype() == logits.dtype();
  Tensor dlogits = in_place ? logits.view() : activation_like(chunk.normed, logits.shape());
  ops.cross_entropy_gradient(logits, sum_exp, chunk.targets, first_column, chunk.grad_scale, dlogits);
  ops.linear_backward_input(dlogits, weight, d_normed, Write::overwrite);
  add_table_gradient(ops, dlogits, chunk.normed);
  return loss;
}

void Head::add_table_gradient(Ops& ops, const Tensor& dlogits, const Tensor& normed) const {
  const Tensor stored = table_->grad();
  Tensor grad = without_padding(stored), no_bias;
  Tensor padding = stored.rows(grad.dim(0), stored.dim(0));
  const Write write = table_->next_grad_write();
  if (write == Write::overwrite) ops.device().zero(padding);
  ops.linear_backward_weight(dlogits, normed, grad, no_bias, write);
}

Tensor Head::without_padding(const Tensor& table) const {
  const Slice& slice = *table_->spec().slice;
  return table.rows(0, slice.end - slice.begin);
}

Tensor Head::backward_input(Ops& ops, Saved& saved) const {
  Tensor dx = activation_like(saved.x, saved.x.shape());
  norm_.backward_input(ops, saved.d_normed, saved.x, saved.stats, dx, Write::overwrite);
  return dx;
}

void Head::backward_weight(Ops& ops, Saved& saved) const {
  norm_.backward_weight(ops, saved.d_normed, saved.x, saved.stats);
  saved = {};
}

Tensor Head::logits(Ops& ops, const Tensor& x, const StageContext& context) const {
  Tensor held = activation_like(x, x.shape());
  Tensor stats = statistics_like(x, {x.dim(0), 2});
  norm_.forward(ops, x, held, stats);
  const Tensor normed = gather_tokens(tp_, std::move(held), context.tokens);

  const Tensor weight = table_->value();
  const int64_t rows = normed.dim(0), vocab_size = table_->spec().shape[0];
  Tensor parts = scratch(x, {tp_.size() * rows, weight.dim(0)});  // the columns of one rank after another's
  Tensor own_part = parts.rows(tp_.rank() * rows, (tp_.rank() + 1) * rows);
  ops.gemm(normed, Transpose::no, weight, Transpose::yes, own_part, Write::overwrite);
  tp_.all_gather(own_part, parts).wait();

  Tensor logits = scratch(x, {rows, vocab_size});
  for (int rank = 0; rank < tp_.size(); ++rank) {
    const Slice slice = parallel::equal_slice(0, vocab_size, rank, tp_.size());
    Tensor columns = logits.columns(slice.begin, slice.end);
    const Tensor part = parts.rows(rank * rows, (rank + 1) * rows);
    ops.device().copy(part.columns(0, columns.dim(1)), columns);
  }
  return logits;
}

}  // namespace model
