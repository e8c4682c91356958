/// What sequence parallelism moves, counted by the ledger, is what its formulas say (model/sequence_attention.h), to
/// the byte. In bf16, so that messages in the accumulator's dtype show.

#include "tests/model/ranks/sequence_parallel_fixture.h"

namespace tests {

using model::ModelConfig;
using model::Recompute;
using parallel::Bill;
using parallel::Collective;
using tensor::Dtype;

namespace {

struct Sizes {
  int64_t q, kv;  // elements of this rank's tokens
};

class ExpectedBill {
 public:
  ExpectedBill(int size, int64_t num_layers) : size_(size), num_layers_(num_layers) {}

  void add(Collective op, Dtype dtype, int64_t count, int64_t calls) {
    parallel::add_to_bill(bill_, {.axis = "sp", .op = op, .dtype = dtype}, count, calls * num_layers_);
  }
  void add_hops(Dtype dtype, int64_t count) {
    add(Collective::send, dtype, count, size_ - 1);
    add(Collective::receive, dtype, count, size_ - 1);
  }
  void add_forward(SpMethod method, const Sizes& sizes) {
    if (method == SpMethod::ring) add_hops(Dtype::bf16, sizes.kv);
    if (method == SpMethod::all_gather) add(Collective::all_gather, Dtype::bf16, size_ * sizes.kv, 1);
    if (method == SpMethod::ulysses) add_exchanges(sizes);
  }
  void add_backward(SpMethod method, const Sizes& sizes) {
    add_forward(method, sizes);
    if (method == SpMethod::ring) add_hops(Dtype::fp32, sizes.kv);
    if (method == SpMethod::all_gather) add(Collective::reduce_scatter, Dtype::fp32, size_ * sizes.kv, 1);
  }

  /// Nothing where there is one rank.
  Bill bill() const { return size_ > 1 ? bill_ : Bill(); }

 private:
  /// q, k and v one way, and o (as large as q) the other. Heads are even here: all send as much as they receive.
  void add_exchanges(const Sizes& sizes) {
    add(Collective::all_to_all_v, Dtype::bf16, sizes.q + sizes.kv, 1);
    add(Collective::all_to_all_v, Dtype::bf16, sizes.q, 1);
  }

  int size_;
  int64_t num_layers_;
  Bill bill_;
};

Bill of_axis(const Bill& bill, const std::string& axis) {
  Bill part;
  for (const auto& [key, line] : bill) {
    if (key.axis == axis) part[key] = line;
  }
  return part;
}

}  // namespace

class SequenceBill : public TensorParallelTest {
 protected:
  SequenceBill() {
    config_.num_heads = 8;
    config_.num_kv_heads = 4;
    config_.head_dim = 6;
  }

  Sizes sizes(int64_t num_sequences) const {
    const int64_t tokens = num_sequences * config_.seq_len / size();
    return {tokens * config_.num_heads * config_.head_dim, tokens * 2 * config_.num_kv_heads * config_.head_dim};
  }
  Bill bill_of_step(SpMethod method, const std::vector<model::HostBatch>& micro_batches,
                    Recompute recompute = Recompute::none) {
    const SequenceMesh mesh({.tp = 1, .sp = size()}, method, config_.kv_heads(), factory_);
    TestModel model(config_, Dtype::bf16, {.recompute = recompute}, 1, mesh.sharing());
    ledger_.end_step();
    model.run_step(micro_batches);
    return of_axis(ledger_.end_step(), "sp");
  }

  ModelConfig config_ = sequence_shared(shared_llama());
};

class SequenceParallelBill : public SequenceBill, public testing::WithParamInterface<SpMethod> {};

TEST_P(SequenceParallelBill, IsThatOfTheFormulas) {
  ExpectedBill expected(size(), config_.num_layers);
  for (const int64_t num_sequences : {3, 1}) {
    expected.add_forward(GetParam(), sizes(num_sequences));
    expected.add_backward(GetParam(), sizes(num_sequences));
  }

  const Bill bill = bill_of_step(GetParam(), {random_batch(config_, 3, 1), random_batch(config_, 1, 2)});

  EXPECT_EQ(bill, expected.bill()) << format_bill(bill);
}

TEST_P(SequenceParallelBill, OfSelectiveRecomputeIsTheSame) {
  const Bill expected = bill_of_step(GetParam(), {random_batch(config_, 2, 1)});

  EXPECT_EQ(bill_of_step(GetParam(), {random_batch(config_, 2, 1)}, Recompute::selective), expected);
}

TEST_P(SequenceParallelBill, OfFullRecomputeAddsTheForward) {
  ExpectedBill expected(size(), config_.num_layers);
  for (int pass = 0; pass < 2; ++pass) expected.add_forward(GetParam(), sizes(2));
  expected.add_backward(GetParam(), sizes(2));

  const Bill bill = bill_of_step(GetParam(), {random_batch(config_, 2, 1)}, Recompute::full);

  EXPECT_EQ(bill, expected.bill()) << format_bill(bill);
}

/// Where ranks hold copies of a kv head, its keys and values are sent to each, and as many gradients come back.
TEST_F(SequenceBill, OfUlyssesCountsEveryCopyOfAKvHead) {
  config_.num_kv_heads = 1;
  const Sizes one = sizes(1);
  const int64_t q = one.q, kv = size() * one.kv;  // to all ranks; back come one rank's heads of all tokens
  ExpectedBill expected(size(), config_.num_layers);
  for (int direction = 0; direction < 2; ++direction) {
    expected.add(Collective::all_to_all_v, Dtype::bf16, q + kv, 1);
    expected.add(Collective::all_to_all_v, Dtype::bf16, q, 1);
  }

  const Bill bill = bill_of_step(SpMethod::ulysses, {random_batch(config_, 1, 1)});

  EXPECT_EQ(bill, expected.bill()) << format_bill(bill);
}

INSTANTIATE_TEST_SUITE_P(Methods, SequenceParallelBill,
                         testing::Values(SpMethod::ring, SpMethod::ulysses, SpMethod::all_gather),
                         [](const auto& drawn) { return to_string(drawn.param); });

}  // namespace tests
