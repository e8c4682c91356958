#include "model/ulysses_attention.h"

#include <algorithm>

#include "model/allocate.h"

namespace model {

using tensor::Ops;
using tensor::Tensor;

HeadShare head_share(const AttentionHeads& heads, int rank, int size) {
  CHECK(heads.q >= size, "{} heads for {} ranks", heads.q, size);
  const int64_t per_kv = heads.q / heads.kv;
  if (heads.kv >= size) {
    const int64_t first = rank * heads.kv / size, end = (rank + 1) * heads.kv / size;
    return {first * per_kv, (end - first) * per_kv, first, end - first};
  }
  const int64_t kv = rank * heads.kv / size;
  const auto first_rank_of = [&](int64_t kv_head) { return (kv_head * size + heads.kv - 1) / heads.kv; };
  const int64_t place = rank - first_rank_of(kv), copies = first_rank_of(kv + 1) - first_rank_of(kv);
  const int64_t first = place * per_kv / copies, end = (place + 1) * per_kv / copies;
  return {kv * per_kv + first, end - first, kv, 1};
}

UlyssesAttention::UlyssesAttention(const AttentionHeads& heads, parallel::Communicator& sp) : heads_(heads), sp_(sp) {
  const int64_t dim = heads.head_dim;
  for (int rank = 0; rank < sp.size(); ++rank) {
    const HeadShare share = head_share(heads, rank, sp.size());
    const Columns q = {share.first_q * dim, (share.first_q + share.num_q) * dim};
    const auto kv = [&](int64_t before) {
      return Columns{(before + share.first_kv) * dim, (before + share.first_kv + share.num_kv) * dim};
    };
    q_.push_back({q});
    qkv_.push_back({q, kv(heads.q), kv(heads.q + heads.kv)});
    if (rank == sp.rank()) own_ = {share.num_q, share.num_kv, dim};
  }
}

Tensor UlyssesAttention::forward(Ops& ops, Tensor qkv, const MicroBatch& batch, Saved& saved) const {
  saved.qkv = to_heads(qkv, qkv_, batch);
  qkv = {};
  saved.o = activation_like(saved.qkv, {saved.qkv.dim(0), own_.q_width()});
  saved.lse = statistics_like(saved.qkv, {saved.qkv.dim(0), own_.q});
  Tensor o_heads = own_.q_of(saved.o);
  ops.attention(own_.q_of(saved.qkv), own_.k_of(saved.qkv), own_.v_of(saved.qkv), mask(batch), own_.scale(), o_heads,
                saved.lse);
  return to_tokens(ops, saved.o, q_, batch);
}

Tensor UlyssesAttention::backward(Ops& ops, const Tensor&, const Tensor& d_o, const MicroBatch& batch,
                                  Saved& saved) const {
  Tensor d_qkv = activation_like(d_o, saved.qkv.shape());
  {
    const Tensor d_own = to_heads(d_o, q_, batch);
    Tensor dq = own_.q_of(d_qkv), dk = own_.k_of(d_qkv), dv = own_.v_of(d_qkv);
    ops.attention_backward(own_.q_of(saved.qkv), own_.k_of(saved.qkv), own_.v_of(saved.qkv), own_.q_of(saved.o),
                           saved.lse, own_.q_of(d_own), mask(batch), own_.scale(), dq, dk, dv);
  }
  saved = {};
  return to_tokens(ops, d_qkv, qkv_, batch);
}

tensor::AttentionMask UlyssesAttention::mask(const MicroBatch& batch) const {
  return {std::max<int64_t>(1, batch.num_sequences), batch.whole.positions, batch.whole.first_visible,
          batch.whole.positions};
}

// ---- exchanges: a message is rows of head_dim, those of one token after another's -----------------------------------

int64_t UlyssesAttention::width_for(const Parts& parts, int rank) const {
  int64_t width = 0;
  for (const Columns& columns : parts[static_cast<size_t>(rank)]) width += columns.end - columns.begin;
  return width;
}

std::vector<int64_t> UlyssesAttention::rows_by_rank(const Parts& parts, int64_t tokens) const {
  std::vector<int64_t> rows;
  for (int rank = 0; rank < sp_.size(); ++rank) {
    rows.push_back(tokens * width_for(parts, rank) / heads_.head_dim);
  }
  return rows;
}

namespace {

int64_t total(const std::vector<int64_t>& rows) {
  int64_t sum = 0;
  for (const int64_t count : rows) sum += count;
  return sum;
}

/// The rows of each rank in x, as tensors [tokens, columns].
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& rows, int64_t tokens) {
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t count : rows) {
    const int64_t width = tokens == 0 ? 0 : count * x.dim(1) / tokens;
    parts.push_back(x.rows(begin, begin + count).reshaped({tokens, width}));
    begin += count;
  }
  return parts;
}

}  // namespace

Tensor UlyssesAttention::to_heads(const Tensor& x, const Parts& parts, const MicroBatch& batch) const {
  const int64_t tokens = x.dim(0), dim = heads_.head_dim, width = width_for(parts, sp_.rank());
  const std::vector<int64_t> send_rows = rows_by_rank(parts, tokens);
  const std::vector<int64_t> receive_rows(static_cast<size_t>(sp_.size()), tokens * width / dim);
  Tensor send = activation_like(x, {total(send_rows), dim}), receive = activation_like(x, {total(receive_rows), dim});
  const std::vector<Tensor> messages = split(send, send_rows, tokens);
  for (size_t rank = 0; tokens > 0 && rank < messages.size(); ++rank) {
    int64_t begin = 0;
    for (const Columns& columns : parts[rank]) {
      Tensor to = messages[rank].columns(begin, begin + columns.end - columns.begin);
      x.device().copy(x.columns(columns.begin, columns.end), to);
      begin += columns.end - columns.begin;
    }
  }
  sp_.all_to_all_v(send, send_rows, receive, receive_rows).wait();
  send = {};
  return parallel::by_rank_to_in_sequence(receive.reshaped({sp_.size() * tokens, width}), batch.num_sequences,
                                          sp_.size());
}

Tensor UlyssesAttention::to_tokens(Ops& ops, const Tensor& x, const Parts& parts, const MicroBatch& batch) const {
  const int64_t tokens = x.dim(0) / sp_.size(), dim = heads_.head_dim, width = x.dim(1);
  const std::vector<int64_t> send_rows(static_cast<size_t>(sp_.size()), tokens * width / dim);
  const std::vector<int64_t> receive_rows = rows_by_rank(parts, tokens);
  const Tensor send = parallel::in_sequence_to_by_rank(x, batch.num_sequences, sp_.size());
  Tensor receive = activation_like(x, {total(receive_rows), dim});
  sp_.all_to_all_v(send.reshaped({total(send_rows), dim}), send_rows, receive, receive_rows).wait();

  Tensor y = activation_like(x, {tokens, parts.back().back().end});
  const std::vector<Tensor> messages = split(receive, receive_rows, tokens);
  for (size_t rank = 0; tokens > 0 && rank < messages.size(); ++rank) {
    int64_t begin = 0;
    for (size_t i = 0; i < parts[rank].size(); ++i) {
      const Columns& columns = parts[rank][i];
      const Tensor from = messages[rank].columns(begin, begin + columns.end - columns.begin);
      Tensor to = y.columns(columns.begin, columns.end);
      const bool is_copy = rank > 0 && parts[rank - 1][i].end == columns.end;
      if (is_copy) {
        ops.add(to, from, to);
      } else {
        x.device().copy(from, to);
      }
      begin += columns.end - columns.begin;
    }
  }
  return y;
}

}  // namespace model
