/// Proves on many random models and layouts that a layout computes what one rank computes, as `trainer verify` does,
/// and that it sends what `trainer plan` says, to the byte:
///   mpirun -np 8 layout_fuzzer [--draws 40] [--seed 1] [--verbose]
/// Draw i has the seed SEED + i, and runs alone with --seed SEED+i --draws 1 under the same number of ranks. One launch
/// runs all: draws of smaller worlds run side by side. Exits with 7 where a draw differs. --verbose says what each draw
/// is before it starts, for those that crash.

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>

#include "parallel/mpi_communicator_factory.h"
#include "tests/trainer/ranks/layout_draw.h"
#include "trainer/agreement.h"
#include "trainer/config_reader.h"
#include "trainer/learner.h"
#include "trainer/plan.h"
#include "trainer/scalars.h"
#include "trainer/verify.h"

namespace tests {
namespace {

using tensor::ExitCode;

struct FuzzOptions {
  uint64_t first_seed = 1;
  int64_t num_draws = 40;
  bool is_verbose = false;
};

template <class Number>
void read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return;
  throw tensor::ConfigError(fmt::format("\"{}\" is not a whole number.\n  Fix: --draws N --seed S", text));
}

FuzzOptions parse(const std::vector<std::string_view>& arguments) {
  FuzzOptions options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view name = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (name == "--verbose") {
      options.is_verbose = true;
    } else if (name == "--draws" && has_value) {
      read_number(arguments[++i], options.num_draws);
    } else if (name == "--seed" && has_value) {
      read_number(arguments[++i], options.first_seed);
    } else {
      throw tensor::ConfigError(fmt::format("\"{}\" is no option.\n  Fix: [--draws N] [--seed S] [--verbose]", name));
    }
  }
  return options;
}

/// Hands every draw the ranks that have had the least to do. The same on all ranks.
class Workload {
 public:
  explicit Workload(int num_ranks) : cost_(static_cast<size_t>(num_ranks)) {}

  std::vector<int> assign(int num_ranks) {
    size_t first = 0;
    const auto width = static_cast<size_t>(num_ranks);
    for (size_t i = 0; i + width <= cost_.size(); ++i) {
      if (start_at(i, width) < start_at(first, width)) first = i;
    }
    const int64_t end = start_at(first, width) + num_ranks;
    std::vector<int> ranks;
    for (size_t i = first; i < first + width; ++i) {
      cost_[i] = end;
      ranks.push_back(static_cast<int>(i));
    }
    return ranks;
  }

 private:
  int64_t start_at(size_t first, size_t width) const {
    const auto begin = cost_.begin() + static_cast<std::ptrdiff_t>(first);
    return *std::max_element(begin, begin + static_cast<std::ptrdiff_t>(width));
  }

  std::vector<int64_t> cost_;
};

class Fuzzer {
 public:
  Fuzzer(const FuzzOptions& options, const parallel::MpiEnvironment& mpi)
      : options_(options), mpi_(mpi), backend_(tensor::make_cpu_backend({.num_threads = 1})) {}

  ExitCode run() {
    Workload workload(mpi_.world_size());
    for (int64_t i = 0; i < options_.num_draws; ++i) {
      const LayoutDraw draw = draw_layout(options_.first_seed + static_cast<uint64_t>(i), mpi_.world_size());
      const std::vector<int> ranks = workload.assign(draw.num_ranks);
      if (std::find(ranks.begin(), ranks.end(), mpi_.world_rank()) != ranks.end()) guarded(draw, ranks);
    }
    return sum_up();
  }

 private:
  /// What throws ends all ranks; the draw is said before that.
  void guarded(const LayoutDraw& draw, const std::vector<int>& ranks) {
    try {
      check(draw, ranks);
    } catch (const std::exception& error) {
      const std::string why = fmt::format("rank {}: {}", mpi_.world_rank() - ranks.front(), error.what());
      const bool speaks = mpi_.world_rank() == ranks.front();  // every rank may come here
      say(speaks ? failure(draw, why) : fmt::format("{} FAILED\n{}\n", describe(draw), why));
      throw;
    }
  }

  void check(const LayoutDraw& draw, const std::vector<int>& ranks) {
    const bool speaks = mpi_.world_rank() == ranks.front();
    if (speaks && options_.is_verbose) say(fmt::format("{}\n{}\n", describe(draw), to_toml(draw.config)));
    const auto start = std::chrono::steady_clock::now();
    parallel::Ledger ledger;
    parallel::MpiCommunicatorFactory factory(mpi_, ledger, {.world_ranks = ranks});
    const trainer::RankContext context(draw.config, factory.world_rank(), factory.world_size(), factory,
                                       {.ledger = ledger});
    const auto source = trainer::make_synthetic_source(draw.config);
    const bool is_planned = sends_what_is_planned(draw, context, *source);
    const std::vector<trainer::WorstDifference> differences = verify(draw, context, *source);
    if (!speaks) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (!std::ranges::all_of(differences, &trainer::WorstDifference::passes)) {
      say(failure(draw, trainer::format(differences)));
      ++num_failed_;
    } else if (!is_planned) {
      say(failure(draw, "what the ledger counted is not what the plan says"));
      ++num_failed_;
    } else if (options_.is_verbose) {
      say(fmt::format("{} passes in {:.2f} s\n{}", describe(draw), seconds.count(), trainer::format(differences)));
    }
  }

  std::vector<trainer::WorstDifference> verify(const LayoutDraw& draw, const trainer::RankContext& context,
                                               const trainer::SampleSource& source) {
    trainer::VerifyOptions options = trainer::default_verify_options(draw.config.precision.compute);
    options.steps = 2;
    return trainer::verify(draw.config, backend_, context, source, options);
  }

  /// Rows that ranks send to experts depend on data in two cases: what expert_tp ranks gather of one another is known
  /// as a sum over all ranks, and where tokens may be dropped the plan says how much it is at the most.
  bool depends_on_data(const LayoutDraw& draw, const parallel::BillKey& key) const {
    const bool is_rows = key.dtype == draw.config.precision.compute;
    const bool may_drop = draw.config.model.moe.capacity_factor > 0;
    return is_rows && (key.axis == "expert_tp" || (key.axis == "ep" && may_drop));
  }

  bool same_bill(const LayoutDraw& draw, const trainer::RankContext& context, const parallel::Bill& counted,
                 const parallel::Bill& planned) {
    bool is_same = counted.size() == planned.size();
    std::array<int64_t, 2> rows{};  // counted, planned
    for (const auto& [key, line] : planned) {
      const auto found = counted.find(key);
      const parallel::BillLine sent = found == counted.end() ? parallel::BillLine{} : found->second;
      if (!depends_on_data(draw, key)) {
        is_same = is_same && sent == line;
        continue;
      }
      is_same = is_same && sent.calls == line.calls;
      rows[0] += sent.count;
      rows[1] += line.count;
    }
    trainer::all_reduce_integers(context.world(), *backend_.device, rows);
    const bool may_drop = draw.config.model.moe.capacity_factor > 0;
    return is_same && (may_drop ? rows[0] <= rows[1] : rows[0] == rows[1]);
  }

  /// The bill of a step, to the byte, on every rank of the draw. All of them know.
  bool sends_what_is_planned(const LayoutDraw& draw, const trainer::RankContext& context,
                             const trainer::SampleSource& source) {
    const parallel::Bill counted = bill_of_step(draw, context, source);
    const parallel::Bill planned = trainer::planned_bill(draw.config, draw.num_ranks, context.rank());
    int64_t num_wrong = same_bill(draw, context, counted, planned) ? 0 : 1;
    if (num_wrong > 0) {
      say(fmt::format("{}: rank {} sent\n{}planned\n{}", describe(draw), context.rank(), format_bill(counted),
                      format_bill(planned)));
    }
    trainer::all_reduce_integers(context.world(), *backend_.device, std::span(&num_wrong, 1));
    return num_wrong == 0;
  }

  parallel::Bill bill_of_step(const LayoutDraw& draw, const trainer::RankContext& context,
                              const trainer::SampleSource& source) {
    trainer::Learner learner(draw.config, backend_, context);
    const int64_t part = draw.config.train.global_batch_size / context.num_data_ranks();
    const int64_t begin = part * context.data_rank();
    learner.train({.step = 1, .lr = draw.config.optimizer.lr}, source.read(1, begin, begin + part));
    trainer::agree({}, context.world(), *backend_.device);
    return context.ledger().end_step();
  }

  ExitCode sum_up() {
    parallel::Ledger ledger;
    parallel::MpiCommunicatorFactory factory(mpi_, ledger);
    std::vector<int> everyone;
    for (int rank = 0; rank < mpi_.world_size(); ++rank) everyone.push_back(rank);
    const auto world = factory.make("world", everyone);
    trainer::all_reduce_integers(*world, *backend_.device, std::span(&num_failed_, 1));
    if (mpi_.world_rank() == 0) say(fmt::format("{} draws, {} failed\n", options_.num_draws, num_failed_));
    return num_failed_ == 0 ? ExitCode::finished : ExitCode::numerics;
  }

  static std::string describe(const LayoutDraw& draw) {
    const parallel::ParallelConfig& p = draw.config.parallel;
    return fmt::format(
        "seed {}: {} ranks, tp {}, sp {} ({}), pp {}, dp {}, dp_out {}, ep {}, expert_tp {}, zero_stage {}, {}",
        draw.seed, draw.num_ranks, p.tp, p.sp, to_string(p.sp_method), p.pp, draw.num_ranks / p.tp / p.sp / p.pp,
        p.dp_out, p.ep, p.expert_tp, p.zero_stage, p.schedule);
  }

  std::string failure(const LayoutDraw& draw, const std::string& why) const {
    return fmt::format("{} FAILED\n{}\nRun it alone: mpirun -np {} layout_fuzzer --seed {} --draws 1\n{}\n",
                       describe(draw), why, mpi_.world_size(), draw.seed, trainer::to_toml(draw.config));
  }

  static void say(const std::string& text) {
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  FuzzOptions options_;
  const parallel::MpiEnvironment& mpi_;
  tensor::Backend backend_;
  int64_t num_failed_ = 0;  // of the draws that this rank spoke for
};

}  // namespace
}  // namespace tests

int main(int argc, char** argv) {
  parallel::MpiEnvironment mpi;
  return mpi.run([&] {
    const tests::FuzzOptions options = tests::parse({argv + 1, argv + argc});
    return static_cast<int>(tests::Fuzzer(options, mpi).run());
  });
}
