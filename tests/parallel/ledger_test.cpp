#include "parallel/ledger.h"

#include <gtest/gtest.h>

namespace parallel {
namespace {

using tensor::Dtype;

TEST(Ledger, AddsCallsOfTheSameKind) {
  Ledger ledger;

  ledger.record({"tp", Collective::all_reduce, Dtype::bf16}, 100);
  ledger.record({"tp", Collective::all_reduce, Dtype::bf16}, 28);
  ledger.record({"tp", Collective::all_reduce, Dtype::fp32}, 1);

  EXPECT_EQ(ledger.step(), (Bill{{{"tp", Collective::all_reduce, Dtype::bf16}, {2, 128, 256}},
                                 {{"tp", Collective::all_reduce, Dtype::fp32}, {1, 1, 4}}}));
}

TEST(Ledger, StartsEveryStepEmptyAndKeepsTheRun) {
  Ledger ledger;
  const BillKey key{"grad", Collective::reduce_scatter, Dtype::fp32};

  ledger.record(key, 10);
  const Bill first = ledger.end_step();
  ledger.record(key, 20);

  EXPECT_EQ(first.at(key), (BillLine{1, 10, 40}));
  EXPECT_EQ(ledger.step().at(key), (BillLine{1, 20, 80}));
  EXPECT_EQ(ledger.run().at(key), (BillLine{2, 30, 120}));
  EXPECT_EQ(ledger.end_step().at(key), (BillLine{1, 20, 80}));
  EXPECT_TRUE(ledger.step().empty());
  EXPECT_EQ(ledger.run().at(key), (BillLine{2, 30, 120}));
}

TEST(Bill, CountsAMessageOnItsSendersBillOnly) {
  Bill bill;

  add_to_bill(bill, {"pp", Collective::send, Dtype::bf16}, 8, 3);
  add_to_bill(bill, {"pp", Collective::receive, Dtype::bf16}, 8, 5);

  EXPECT_EQ(total_bytes(bill), 3 * 8 * 2);
}

TEST(Bill, PrintsATable) {
  Bill bill;
  add_to_bill(bill, {"tp", Collective::all_reduce, Dtype::bf16}, 1'000'000, 12);
  add_to_bill(bill, {"grad", Collective::all_gather, Dtype::fp64}, 1);

  EXPECT_EQ(format_bill(bill),
            "group  operation   dtype  calls    elements       bytes\n"
            "grad   all_gather  fp64       1           1           8\n"
            "tp     all_reduce  bf16      12  12,000,000  24,000,000\n"
            "total                        13              24,000,008\n");
}

}  // namespace
}  // namespace parallel
