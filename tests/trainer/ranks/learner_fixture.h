#pragma once
/// One config on many layouts of the launched ranks, with tokens that are a function of seed and sample.

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "parallel/mpi_communicator_factory.h"
#include "tests/support/rank_test.h"
#include "trainer/config_reader.h"
#include "trainer/learner.h"
#include "trainer/scalars.h"
#include "trainer/verify.h"

namespace tests {

using trainer::Config;
using trainer::StepResult;

using Settings = std::vector<std::string>;  ///< as --set takes them

/// Odd sizes, dropout, a tied table, fewer kv heads than four ranks; 8 sequences a step.
inline const std::string kRanksConfig = R"(
[model]
vocab_size = 61
num_layers = 2
hidden_size = 20
num_heads = 4
num_kv_heads = 2
ffn_hidden_size = 28
seq_len = 8
dropout = 0.1
qk_norm = true
bias = true
norm = "layer_norm"
position = "learned"
[train]
steps = 20
global_batch_size = 8
max_grad_norm = 0.5
[optimizer]
lr = 1e-2
[data]
train = "never read"
document_mask = true
)";

inline Settings operator+(Settings a, const Settings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A run of all ranks, or of this one alone, step by step.
class LearnerOnRanks {
 public:
  LearnerOnRanks(const Config& config, int rank, int size, parallel::CommunicatorFactory& factory,
                 parallel::Ledger& ledger)
      : config_(config),
        backend_(tensor::make_cpu_backend({.num_threads = 1})),
        context_(config_, rank, size, factory, {.ledger = ledger}),
        learner_(config_, backend_, context_),
        source_(make_synthetic_source(config_)) {}

  StepResult train(int64_t step) { return learner_.train({.step = step, .lr = config_.optimizer.lr}, part_of(step)); }
  double evaluate(int64_t step) { return learner_.evaluate(part_of(step), part()).mean(); }

  const Config& config() const { return config_; }
  const trainer::RankContext& context() const { return context_; }
  trainer::Learner& learner() { return learner_; }
  parallel::ParameterStore& store() { return learner_.parameters(); }
  tensor::MemoryUse memory(tensor::MemoryCategory category) const { return backend_.device->pool().use(category); }
  int64_t sum_over_ranks(int64_t count) {
    trainer::all_reduce_integers(context_.world(), *backend_.device, std::span(&count, 1));
    return count;
  }
  void reset_peaks() { backend_.device->pool().reset_peaks(); }

 private:
  int64_t part() const { return config_.train.global_batch_size / context_.num_data_ranks(); }
  data::Batch part_of(int64_t step) const {
    const int64_t begin = part() * context_.data_rank();
    return source_->read(step, begin, begin + part());
  }

  Config config_;
  tensor::Backend backend_;
  trainer::RankContext context_;
  trainer::Learner learner_;
  std::unique_ptr<trainer::SampleSource> source_;
};

class LearnerRanksTest : public testing::Test {
 protected:
  int rank() const { return mpi_environment().world_rank(); }
  int size() const { return mpi_environment().world_size(); }

  static Config config(const Settings& settings = {}) {
    return trainer::parse_config(kRanksConfig, "ranks.toml", settings);
  }
  std::unique_ptr<LearnerOnRanks> make(const Settings& settings) {
    return std::make_unique<LearnerOnRanks>(config(settings), rank(), size(), factory_, ledger_);
  }
  std::unique_ptr<LearnerOnRanks> make_alone(const Settings& settings) {
    return std::make_unique<LearnerOnRanks>(config(settings), 0, 1, self_factory_, self_ledger_);
  }

  /// Every way to split `size()` ranks over tp and dp, and dp over dp_out.
  std::vector<Settings> layouts() const {
    std::vector<Settings> layouts;
    for (int tp = 1; tp <= size(); tp *= 2) {
      for (int dp_out = 1; dp_out <= size() / tp && dp_out <= 2; ++dp_out) {
        layouts.push_back({fmt::format("parallel.tp={}", tp), fmt::format("parallel.dp_out={}", dp_out)});
      }
    }
    return layouts;
  }
  /// Those where ZeRO has something to cut, and that of one rank.
  std::vector<Settings> layouts_that_cut() const {
    std::vector<Settings> layouts = {{"parallel.tp=1"}};
    if (size() >= 4) layouts.insert(layouts.end(), {{"parallel.dp_out=2"}, {"parallel.tp=2"}});
    return layouts;
  }
  /// Every kind of sharding of the state.
  static std::vector<Settings> stages() {
    return {{"parallel.zero_stage=0"},
            {"parallel.zero_stage=1"},
            {"parallel.zero_stage=2"},
            {"parallel.zero_stage=3"},
            {"parallel.zero_stage=3", "parallel.zero_reshard=never"}};
  }
  static std::string describe(const Settings& settings) {
    return std::accumulate(settings.begin(), settings.end(), std::string(),
                           [](const std::string& all, const std::string& one) { return all + one + " "; });
  }

  parallel::Ledger ledger_, self_ledger_;
  parallel::MpiCommunicatorFactory factory_{mpi_environment(), ledger_};
  parallel::SelfCommunicatorFactory self_factory_;
};

}  // namespace tests
