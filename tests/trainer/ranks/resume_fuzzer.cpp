/// Random pairs of layouts: one trains and saves, the other resumes. The state after loading has the same bits, and the
/// steps after it the losses of the run that went on. Resumed under its own layout, losses and state have the same
/// bits.
///
///   mpirun -np 8 resume_fuzzer --draws 40 --seed 1

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "parallel/mpi_communicator_factory.h"
#include "parallel/mpi_environment.h"
#include "tests/trainer/ranks/layout_draw.h"
#include "trainer/config_reader.h"
#include "trainer/logical_state.h"
#include "trainer/saved_state.h"
#include "trainer/scalars.h"
#include "trainer/verify.h"

namespace tests {

using trainer::Learner;

namespace {

struct Options {
  int64_t num_draws = 40;
  uint64_t first_seed = 1;
  std::string folder;
  bool is_verbose = false;
};

/// The first ranks of the launch as a world of their own, with a learner on them.
class Run {
 public:
  Run(const LayoutDraw& draw, const std::string& dir, const parallel::MpiEnvironment& mpi)
      : config_(draw.config),
        factory_(mpi, ledger_, {.world_ranks = first_ranks(draw.num_ranks)}),
        context_(with_folder(config_, dir), factory_.world_rank(), factory_.world_size(), factory_,
                 {.ledger = ledger_}),
        learner_(config_, backend_, context_),
        source_(make_synthetic_source(config_)),
        saved_(config_, learner_) {}

  double train(int64_t step) {
    const int64_t part = config_.train.global_batch_size / context_.num_data_ranks();
    const int64_t begin = part * context_.data_rank();
    return learner_.train({.step = step, .lr = config_.optimizer.lr}, source_->read(step, begin, begin + part))
        .loss.mean();
  }
  void save(int64_t step) {
    saved_.start_save(
        {.progress = {.step = step, .samples = 0, .tokens = 0, .seed = 1}, .config_text = "", .build_id = ""});
    saved_.saving().finish();
  }
  int64_t load() { return saved_.load().value().info.progress.step; }
  /// On rank 0: bytes of every tensor by name.
  std::map<std::string, std::string> state() {
    trainer::LogicalState logical(learner_.state(), learner_.parameters(), context_.world(), *backend_.device);
    logical.gather();
    std::map<std::string, std::string> bytes;
    for (const checkpoint::NamedTensor& named : logical.tensors()) {
      bytes[named.name].assign(static_cast<const char*>(named.tensor->raw()),
                               static_cast<size_t>(named.tensor->bytes()));
    }
    return bytes;
  }

 private:
  static std::vector<int> first_ranks(int count) {
    std::vector<int> ranks(static_cast<size_t>(count));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  static trainer::Config& with_folder(trainer::Config& config, const std::string& dir) {
    config.checkpoint.dir = dir;
    config.checkpoint.resume = "auto";
    return config;
  }

  trainer::Config config_;
  tensor::Backend backend_ = tensor::make_cpu_backend({.num_threads = 1});
  parallel::Ledger ledger_;
  parallel::MpiCommunicatorFactory factory_;
  trainer::RankContext context_;
  Learner learner_;
  std::unique_ptr<trainer::SampleSource> source_;
  trainer::SavedState saved_;
};

class ResumeFuzzer {
 public:
  ResumeFuzzer(const parallel::MpiEnvironment& mpi, const Options& options) : mpi_(mpi), options_(options) {}

  tensor::ExitCode run() {
    for (int64_t i = 0; i < options_.num_draws; ++i) check(options_.first_seed + static_cast<uint64_t>(i));
    if (mpi_.world_rank() == 0) std::printf("%ld pairs, %ld failed\n", options_.num_draws, num_failed_);
    return num_failed_ == 0 ? tensor::ExitCode::finished : tensor::ExitCode::numerics;
  }

 private:
  using State = std::map<std::string, std::string>;
  /// What a run was like, as its rank 0 knows.
  struct Seen {
    State before, after;  ///< of steps 3 and 4
    std::vector<double> losses;
  };

  void check(uint64_t seed) {
    const LayoutDraw first = draw_layout(seed, mpi_.world_size());
    const LayoutDraw second = draw_other_layout(first, seed + 1'000'000, mpi_.world_size());
    const std::string dir = fmt::format("{}/seed_{}", options_.folder, seed);
    const Seen straight = see(first, dir, [](Run& run) {
      run.train(1);
      run.train(2);
      run.save(2);
    });
    const auto load = [](Run& run) { run.load(); };
    const Seen same = see(first, dir, load);
    const Seen other = see(second, dir, load);
    if (mpi_.world_rank() != 0) return;
    const bool is_same =
        same.before == straight.before && same.after == straight.after && same.losses == straight.losses;
    report({seed, first, second}, is_same, other.before == straight.before, difference(straight.losses, other.losses));
    std::filesystem::remove_all(dir);
  }

  template <class Begin>
  Seen see(const LayoutDraw& draw, const std::string& dir, const Begin& begin) {
    Seen seen;
    if (mpi_.world_rank() < draw.num_ranks) {
      Run run(draw, dir, mpi_);
      begin(run);
      seen.before = run.state();
      seen.losses = {run.train(3), run.train(4)};
      seen.after = run.state();
    }
    barrier();
    return seen;
  }

  static double difference(const std::vector<double>& a, const std::vector<double>& b) {
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(a[i]));
    return worst;
  }

  struct Pair {
    uint64_t seed;
    const LayoutDraw& first;
    const LayoutDraw& second;
  };
  void report(const Pair& pair, bool is_same, bool has_same_state, double loss_difference) {
    const bool is_good = is_same && has_same_state && loss_difference <= 1e-10;
    if (!is_good) ++num_failed_;
    if (is_good && !options_.is_verbose) return;
    std::printf("seed %lu %s: the same layout goes on %s; another loads %s, and its losses differ by %.1e\n",
                static_cast<unsigned long>(pair.seed), is_good ? "passes" : "FAILED",
                is_same ? "to the bit" : "DIFFERENTLY", has_same_state ? "the same bits" : "OTHER BITS",
                loss_difference);
    if (!is_good) {
      std::printf("saved on %d ranks:\n%s\nresumed on %d ranks:\n%s\n", pair.first.num_ranks,
                  trainer::to_toml(pair.first.config).c_str(), pair.second.num_ranks,
                  trainer::to_toml(pair.second.config).c_str());
    }
    std::fflush(stdout);
  }

  void barrier() {
    parallel::Ledger ledger;
    parallel::MpiCommunicatorFactory factory(mpi_, ledger);
    std::vector<int> everyone(static_cast<size_t>(mpi_.world_size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    factory.make("world", everyone)->barrier();
  }

  const parallel::MpiEnvironment& mpi_;
  Options options_;
  int64_t num_failed_ = 0;
};

}  // namespace

}  // namespace tests

int main(int argc, char** argv) {
  tests::Options options;
  CLI::App app("Resumes checkpoints of random layouts under other ones");
  app.add_option("--draws", options.num_draws);
  app.add_option("--seed", options.first_seed);
  app.add_option("--folder", options.folder, "where checkpoints go for a moment")->required();
  app.add_flag("--verbose", options.is_verbose);
  CLI11_PARSE(app, argc, argv);
  parallel::MpiEnvironment mpi;
  return mpi.run([&] { return static_cast<int>(tests::ResumeFuzzer(mpi, options).run()); });
}
