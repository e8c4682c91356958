/// A run of many ranks is broken off and goes on, on other ranks than before, as if nothing had happened.

#include <mpi.h>
#include <signal.h>

#include "parallel/mpi_communicator_factory.h"
#include "tests/support/rank_test.h"
#include "tests/trainer/tiny_run.h"

namespace tests {

using tensor::ExitCode;
using trainer::Config;

namespace {

using Settings = std::vector<std::string>;

/// Rank 0's text, on every rank.
std::string shared(std::string text) {
  auto size = static_cast<int>(text.size());
  MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD);
  text.resize(static_cast<size_t>(size));
  MPI_Bcast(text.data(), size, MPI_CHAR, 0, MPI_COMM_WORLD);
  return text;
}

/// Numbers of every step that no layout changes.
std::vector<double> numbers_of(const std::string& run_dir) {
  std::vector<double> numbers;
  for (const std::string& line : trainer::trajectory(run_dir)) {
    const auto step = nlohmann::json::parse(line);
    for (const char* key : {"step", "samples", "loss", "grad_norm", "lr", "valid_loss"}) {
      if (step.contains(key)) numbers.push_back(step[key]);
    }
  }
  return numbers;
}

}  // namespace

class ResumeOnRanks : public testing::Test {
 protected:
  ResumeOnRanks() {
    if (is_root()) data_.emplace();
    text_ = shared(is_root() ? data_->config_text() : "");
    folder_ = shared(is_root() ? data_->folder().path() : "");
  }
  ~ResumeOnRanks() override { MPI_Barrier(MPI_COMM_WORLD); }

  static int size() { return mpi_environment().world_size(); }
  static bool is_root() { return mpi_environment().world_rank() == 0; }

  /// The learning rate does not depend on train.steps, so that a run can be asked for more.
  Config config(const std::string& name, const Settings& settings) const {
    Settings all = {fmt::format("run.dir=\"{}\"", dir(name)),
                    "precision.compute=fp64",
                    "train.micro_batch_size=1",
                    "lr_schedule.kind=constant",
                    "lr_schedule.min_lr=0",
                    "train.eval_every=2",
                    "lr_schedule.warmup_steps=1",
                    "checkpoint.every_steps=100"};
    all.insert(all.end(), settings.begin(), settings.end());
    return trainer::parse_config(text_, "tiny.toml", all);
  }
  std::string dir(const std::string& name) const { return folder_ + "/" + name; }

  struct Layout {
    Settings settings;
    bool is_one_rank = false;
  };
  /// One rank, every (tp, dp) of this world under some stage, one rank.
  static std::vector<Layout> layouts() {
    std::vector<Layout> layouts = {{{}, true}};
    int64_t stage = 3;
    for (int tp = size(); tp >= 1; tp /= 2) {
      for (const char* tokens : {"false", "true"}) {
        layouts.push_back({{fmt::format("parallel.tp={}", tp), fmt::format("parallel.zero_stage={}", stage),
                            fmt::format("parallel.tp_sequence={}", tokens)}});
        stage = (stage + 3) % 4;
      }
    }
    if (size() > 1) layouts.push_back({{"parallel.dp_out=2", "parallel.zero_stage=3"}});
    layouts.push_back({{}, true});
    return layouts;
  }

  /// The same, of a model with experts: on one rank, and shared out in every way.
  static std::vector<Layout> expert_layouts() {
    const Settings experts = {"model.moe.num_experts=4", "model.moe.balance=bias", "model.moe.ffn_hidden_size=12"};
    const auto with_experts = [&](Settings settings, bool is_one_rank) {
      settings.insert(settings.end(), experts.begin(), experts.end());
      return Layout{std::move(settings), is_one_rank};
    };
    std::vector<Layout> layouts = {with_experts({}, true)};
    for (int ep = size(); ep >= 1; ep /= 2) {
      layouts.push_back(with_experts({fmt::format("parallel.ep={}", ep), "parallel.zero_stage=3",
                                      fmt::format("parallel.expert_tp={}", size() / ep)},
                                     false));
    }
    if (size() > 1) layouts.push_back(with_experts({"parallel.ep=2", "parallel.tp=2", "parallel.zero_stage=1"}, false));
    layouts.push_back(with_experts({}, true));
    return layouts;
  }

  void expect_the_numbers_of_an_unbroken_run(const std::vector<Layout>& layouts) {
    const int64_t num_steps = 2 * std::ssize(layouts);
    train(layouts.front(), "unbroken", num_steps);

    int64_t step = 0;
    for (const Layout& layout : layouts) train(layout, "broken", step += 2);

    if (!is_root()) return;
    const std::vector<double> unbroken = numbers_of(dir("unbroken"));
    const std::vector<double> broken = numbers_of(dir("broken"));
    const auto count_losses = trainer::trajectory(dir("broken")).size();
    EXPECT_EQ(std::ssize(trainer::trajectory(dir("unbroken"))), num_steps);
    EXPECT_EQ(static_cast<int64_t>(count_losses), num_steps);
    ASSERT_EQ(broken.size(), unbroken.size());
    for (size_t i = 0; i < unbroken.size(); ++i) {
      EXPECT_NEAR(broken[i], unbroken[i], 1e-10 * std::abs(unbroken[i])) << "number " << i;
    }
  }

  /// All ranks together, or rank 0 alone while the others wait.
  void train(const Layout& layout, const std::string& name, int64_t steps) {
    Settings settings = layout.settings;
    settings.push_back(fmt::format("train.steps={}", steps));
    const Config config = this->config(name, settings);
    if (!layout.is_one_rank) {
      EXPECT_EQ(train_together(config), ExitCode::finished);
    } else if (is_root()) {
      EXPECT_EQ(trainer::train_here(config), ExitCode::finished);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  /// `start` happens on every rank between what a run checks and its first step.
  ExitCode train_together(
      const Config& config, const std::function<void()>& start = [] {}) {
    tensor::Backend backend = tensor::make_cpu_backend({.num_threads = 1});
    parallel::Ledger ledger;
    parallel::MpiCommunicatorFactory factory(mpi_environment(), ledger);
    const trainer::RankContext context(config, mpi_environment().world_rank(), size(), factory, {.ledger = ledger});
    trainer::TrainingRun run({.config = config, .backend = backend, .context = context, .console = nullptr});
    start();
    return run.run();
  }

  std::optional<trainer::TinyData> data_;  // on rank 0
  std::string text_, folder_;
};

TEST_F(ResumeOnRanks, AnotherLayoutGoesOnWithTheSameNumbers) { expect_the_numbers_of_an_unbroken_run(layouts()); }

TEST_F(ResumeOnRanks, AnotherLayoutOfExpertsGoesOnWithTheSameNumbers) {
  expect_the_numbers_of_an_unbroken_run(expert_layouts());
}

TEST_F(ResumeOnRanks, ASignalOnOneRankStopsAllWithACheckpoint) {
  const Settings settings = {"parallel.zero_stage=3", "train.steps=5"};
  EXPECT_EQ(train_together(config("unbroken", settings)), ExitCode::finished);

  const bool is_hit = mpi_environment().world_rank() == size() - 1;
  const ExitCode ended = train_together(config("stopped", settings), [&] {
    if (is_hit) ::raise(SIGTERM);
  });

  EXPECT_EQ(ended, ExitCode::run_again);
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_TRUE(std::filesystem::exists(trainer::checkpoint_at(dir("stopped"), 1)));
  EXPECT_EQ(trainer::trajectory(dir("stopped")).size(), 1u);
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_EQ(train_together(config("stopped", settings)), ExitCode::finished);
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_EQ(numbers_of(dir("stopped")), numbers_of(dir("unbroken")));
}

TEST_F(ResumeOnRanks, ARunThatIsFinishedEndsOnAllRanks) {
  const Settings settings = {"parallel.zero_stage=2", "train.steps=3"};
  EXPECT_EQ(train_together(config("run", settings)), ExitCode::finished);
  EXPECT_EQ(train_together(config("run", settings)), ExitCode::finished);
}

}  // namespace tests
