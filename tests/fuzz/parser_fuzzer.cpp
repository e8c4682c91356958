/// Feeds one parser with valid inputs that were changed at random:
///
///   parser_fuzzer TARGET [--seconds N] [--inputs N] [--seed S]       parser_fuzzer list
///
/// Each input is read, or refused by the documented kind of error. Anything else (another exception, a crash, a
/// sanitizer's complaint, ten seconds and no answer) is a finding: exit code 1, and the command that brings it back.

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "tests/fuzz/target.h"
#include "tests/fuzz/watched_run.h"
#include "tests/support/temporary_folder.h"

/// HDF5 1.10 itself loses some memory when it fails to open a damaged file.
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }
extern "C" const char* __lsan_default_options() { return "print_suppressions=0"; }
/// No parser needs that much.
extern "C" const char* __asan_default_options() { return "max_allocation_size_mb=2048:hard_rss_limit_mb=3072"; }

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostSecondsPerInput = 10;

struct Options {
  std::string target;
  int64_t seconds = 60;
  int64_t num_inputs = INT64_MAX;
  uint64_t seed = 1;
};

Options parse_options(int argc, char** argv) {
  Options options;
  if (argc > 1) options.target = argv[1];
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    if (name == "--seconds") options.seconds = std::stoll(argv[i + 1]);
    if (name == "--inputs") options.num_inputs = std::stoll(argv[i + 1]);
    if (name == "--seed") options.seed = std::stoull(argv[i + 1]);
  }
  return options;
}

/// Whether the input was read or properly refused.
bool feed_one(fuzz::Target& target, const fuzz::TargetEntry& entry, fuzz::Counts& counts) {
  fuzz::Random random(counts.seed);
  try {
    target.feed(random);
    ++counts.num_read;
    return true;
  } catch (const tensor::Error& error) {
    const auto& kinds = entry.refusals;
    ++counts.num_refused;
    if (std::find(kinds.begin(), kinds.end(), error.code()) != kinds.end()) return true;
    fmt::print(stderr, "an error with exit code {}: {}\n", static_cast<int>(error.code()), error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "an exception that is none of ours: {}\n", error.what());
  }
  return false;
}

bool feed(const fuzz::TargetEntry& entry, const std::string& folder, const Options& options, fuzz::Counts& counts) {
  const auto target = entry.make(folder);
  const auto end = Clock::now() + std::chrono::seconds(options.seconds);
  for (int64_t i = 0; i < options.num_inputs && Clock::now() < end; ++i) {
    counts.seed = options.seed + static_cast<uint64_t>(i);
    if (!feed_one(*target, entry, counts)) return false;
  }
  return true;
}

std::vector<fuzz::TargetEntry> all_targets() {
  std::vector<fuzz::TargetEntry> all;
  for (const auto& some : {fuzz::checkpoint_targets(), fuzz::data_targets(), fuzz::text_targets()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

int run(const fuzz::TargetEntry& entry, const Options& options, const char* program) {
  const tests::TemporaryFolder folder;
  fuzz::Progress progress;
  const fuzz::Counts& counts = progress.counts();

  std::string fate = fuzz::run_watched(progress, kMostSecondsPerInput,
                                       [&] { return feed(entry, folder.path(), options, progress.counts()); });

  const bool is_one_sided = counts.num_read == 0 || (counts.num_refused == 0 && !entry.refusals.empty());
  if (fate.empty() && is_one_sided && options.num_inputs == INT64_MAX) fate = "all inputs were read, or all refused";
  fmt::print("{}: {} inputs refused, {} read", entry.name, counts.num_refused, counts.num_read);
  if (fate.empty()) {
    fmt::print("\n");
    return 0;
  }
  fmt::print("; {}; again: {} {} --seed {} --inputs 1\n", fate, program, entry.name, counts.seed);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  for (const fuzz::TargetEntry& entry : all_targets()) {
    if (options.target == "list") fmt::print("{}\n", entry.name);
    if (options.target == entry.name) return run(entry, options, argv[0]);
  }
  if (options.target == "list") return 0;
  fmt::print(stderr, "parser_fuzzer: give the name of a target; 'parser_fuzzer list' has them\n");
  return 2;
}
