/// Rows to experts on other ranks and back, for every way to share the launched ranks out over ep and expert_tp.

#include "parallel/token_exchange.h"

#include <map>
#include <numeric>

#include "parallel/mesh.h"
#include "parallel/paper_communicator.h"
#include "tests/parallel/ranks/rank_fixture.h"
#include "tests/support/tensors.h"

namespace tests {

using parallel::Communicator;
using parallel::TokenExchange;
using tensor::Dtype;
using tensor::Tensor;

class TokenExchangeRanks : public RankTest {
 protected:
  static constexpr int64_t kHidden = 3;

  struct Shared {
    parallel::Mesh mesh;
    std::unique_ptr<Communicator> ep, expert_tp;
    int64_t num_experts;
  };
  std::vector<Shared> layouts() {
    std::vector<Shared> all;
    for (int expert_tp = 1; expert_tp <= size(); ++expert_tp) {
      if (size() % expert_tp != 0) continue;
      const parallel::Mesh mesh({.dp_in = size(), .ep = size() / expert_tp, .expert_tp = expert_tp});
      all.push_back({mesh, factory_.make("ep", mesh.group(parallel::Group::ep, rank())),
                     factory_.make("expert_tp", mesh.group(parallel::Group::expert_tp, rank())),
                     3 * int64_t{size() / expert_tp}});
    }
    return all;
  }
  /// Uneven; the second expert gets nothing from anybody, the last rank sends nothing.
  std::vector<int64_t> counts(int rank, int64_t num_experts) const {
    std::vector<int64_t> counts;
    for (int64_t e = 0; e < num_experts; ++e) {
      const bool is_silent = size() > 1 && rank == size() - 1;
      counts.push_back(e == 1 || is_silent ? 0 : (e * 5 + rank * 3) % 4);
    }
    return counts;
  }
  /// Names the row: from which rank, for which expert, the how manieth.
  static double row_value(int rank, int64_t expert, int64_t index) {
    return 10'000.0 * rank + 100.0 * static_cast<double>(expert) + static_cast<double>(index);
  }
  Tensor own_rows(const std::vector<int64_t>& counts) {
    Values values;
    for (size_t e = 0; e < counts.size(); ++e) {
      for (int64_t i = 0; i < counts[e]; ++i) {
        values.insert(values.end(), kHidden, row_value(rank(), static_cast<int64_t>(e), i));
      }
    }
    return make_tensor(*backend_.device, {std::ssize(values) / kHidden, kHidden}, Dtype::fp64, values);
  }
  /// What a rank of this place should see.
  Values expected_here(const Shared& shared, const TokenExchange& exchange) const {
    Values values;
    const std::vector<int> tp = shared.mesh.group(parallel::Group::expert_tp, rank());
    for (int64_t e = exchange.first_expert(); e < exchange.first_expert() + exchange.experts_here(); ++e) {
      for (const int of_tp : tp) {
        for (const int from : shared.mesh.group(parallel::Group::ep, of_tp)) {
          for (int64_t i = 0; i < counts(from, shared.num_experts)[static_cast<size_t>(e)]; ++i) {
            values.insert(values.end(), kHidden, row_value(from, e, i));
          }
        }
      }
    }
    return values;
  }
};

TEST_F(TokenExchangeRanks, BringsEveryRowToItsExpertInOrder) {
  for (const Shared& shared : layouts()) {
    const TokenExchange exchange(*shared.ep, *shared.expert_tp, shared.num_experts);
    const std::vector<int64_t> sent = counts(rank(), shared.num_experts);
    const TokenExchange::Route route = exchange.plan(sent, *backend_.device);

    const Tensor here = exchange.to_experts(*backend_.ops, own_rows(sent), route);

    EXPECT_EQ(values_of(here), expected_here(shared, exchange));
    EXPECT_EQ(route.rows_here(), here.dim(0));
    EXPECT_EQ(route.expert_rows.size(), static_cast<size_t>(exchange.experts_here()));
  }
}

TEST_F(TokenExchangeRanks, BringsTheSumOfPartsBack) {
  for (const Shared& shared : layouts()) {
    const TokenExchange exchange(*shared.ep, *shared.expert_tp, shared.num_experts);
    const std::vector<int64_t> sent = counts(rank(), shared.num_experts);
    const Tensor rows = own_rows(sent);
    const TokenExchange::Route route = exchange.plan(sent, *backend_.device);

    Tensor here = exchange.to_experts(*backend_.ops, rows.view(), route);
    const Tensor back = exchange.from_experts(*backend_.ops, here.view(), route);

    Values expected = values_of(rows);
    for (double& value : expected) value *= shared.expert_tp->size();
    EXPECT_EQ(values_of(back), expected);
  }
}

TEST_F(TokenExchangeRanks, BillsEveryRankForItsOwnRowsBothWays) {
  for (const Shared& shared : layouts()) {
    const TokenExchange exchange(*shared.ep, *shared.expert_tp, shared.num_experts);
    const std::vector<int64_t> sent = counts(rank(), shared.num_experts);
    const Tensor rows = own_rows(sent);
    ledger_.end_step();

    const TokenExchange::Route route = exchange.plan(sent, *backend_.device);
    Tensor here = exchange.to_experts(*backend_.ops, rows.view(), route);
    exchange.from_experts(*backend_.ops, here.view(), route);

    const parallel::Bill bill = ledger_.end_step();
    if (shared.ep->size() == 1) continue;
    const int64_t count = rows.numel();
    EXPECT_EQ(bill.at({"ep", parallel::Collective::all_to_all_v, Dtype::fp64}),
              (parallel::BillLine{2, 2 * count, 16 * count}));
    EXPECT_EQ(bill.at({"ep", parallel::Collective::all_to_all_v, Dtype::int32}),
              (parallel::BillLine{1, shared.num_experts, 4 * shared.num_experts}));
  }
}

TEST_F(TokenExchangeRanks, AssumeOnPaperThatAsMuchArrivesAsLeaves) {
  const tensor::Backend paper = tensor::make_paper_backend();
  parallel::Ledger ledger;
  parallel::PaperCommunicatorFactory factory(0, 4, ledger);
  const auto ep = factory.make("ep", {0, 2}), expert_tp = factory.make("expert_tp", {0, 1});
  const TokenExchange exchange(*ep, *expert_tp, 4);

  const TokenExchange::Route route = exchange.plan({7, 0, 0, 3}, *paper.device);
  Tensor rows = paper.device->allocate({10, kHidden}, Dtype::bf16, tensor::MemoryCategory::activations);
  Tensor here = exchange.to_experts(*paper.ops, std::move(rows), route);
  const Tensor back = exchange.from_experts(*paper.ops, std::move(here), route);

  EXPECT_EQ(route.rows_here(), 20);
  EXPECT_EQ(back.dim(0), 10);
  const parallel::Bill bill = ledger.step();
  EXPECT_EQ(bill.at({"ep", parallel::Collective::all_to_all_v, Dtype::bf16}), (parallel::BillLine{2, 60, 120}));
  EXPECT_EQ(bill.at({"expert_tp", parallel::Collective::all_gather, Dtype::bf16}), (parallel::BillLine{1, 60, 120}));
  EXPECT_EQ(bill.at({"expert_tp", parallel::Collective::reduce_scatter, Dtype::bf16}),
            (parallel::BillLine{1, 60, 120}));
}

}  // namespace tests
