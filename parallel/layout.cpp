#include "parallel/layout.h"

#include <numeric>
#include <optional>

#include "tensor/error.h"

namespace parallel {
namespace {

using Wide = __int128;  // products of degrees that a typing error made huge
constexpr int kMaxDegree = 1 << 20;
constexpr Wide kMaxRanks = 1 << 30;

std::vector<int> divisors(int n) {
  std::vector<int> found;
  for (int d = 1; d <= n; ++d) {
    if (n % d == 0) found.push_back(d);
  }
  return found;
}

/// "1, 2, 4 or 8"
std::string one_of(const std::vector<int>& values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += i + 1 == values.size() ? " or " : ", ";
    text += std::to_string(values[i]);
  }
  return text;
}

struct NamedDegree {
  const char* key;
  int64_t value;
  int least = 1;
};

std::vector<LayoutProblem> out_of_range(const std::vector<NamedDegree>& degrees) {
  std::vector<LayoutProblem> problems;
  for (const NamedDegree& degree : degrees) {
    if (degree.least <= degree.value && degree.value <= kMaxDegree) continue;
    problems.push_back({degree.key, fmt::format("{} = {} is not between {} and {}.\n"
                                                "  A degree counts ranks along an axis; 1 turns the axis off.\n"
                                                "  Fix: use 1 or more.",
                                                degree.key, degree.value, degree.least, kMaxDegree)});
  }
  return problems;
}

std::string expert_fix(const Degrees& d) {
  std::string fix = d.block() % d.expert_tp == 0
                        ? fmt::format("set parallel.ep to {}", one_of(divisors(d.block() / d.expert_tp)))
                        : fmt::format("set parallel.expert_tp to {}", one_of(divisors(d.block())));
  const int64_t expert_ranks = static_cast<int64_t>(d.expert_tp) * d.ep;
  const int64_t dense_ranks = static_cast<int64_t>(d.tp) * d.sp;
  const Wide block = static_cast<Wide>(dense_ranks) / std::gcd(dense_ranks, expert_ranks) * expert_ranks;
  const Wide ranks = block * d.pp * d.dp_out;
  if (ranks > kMaxRanks) return fix;
  return fix +
         fmt::format(", or launch a multiple of pp * dp_out * lcm(tp * sp, expert_tp * ep) = {} * {} * {} = {} ranks",
                     d.pp, d.dp_out, block, ranks);
}

std::optional<LayoutProblem> expert_problem(const Degrees& d) {
  const int64_t expert_ranks = static_cast<int64_t>(d.expert_tp) * d.ep;
  if (d.block() % expert_ranks == 0) return std::nullopt;
  return LayoutProblem{
      "parallel.ep",
      fmt::format(
          "parallel.expert_tp * parallel.ep = {} * {} = {} does not divide tp * sp * dp_in = {} * {} * {} = {}.\n"
          "  Experts are spread over the ranks of one pipeline stage, which tp, sp and dp_in make up.\n"
          "  Fix: {}.",
          d.expert_tp, d.ep, expert_ranks, d.tp, d.sp, d.dp_in, d.block(), expert_fix(d))};
}

/// Ranks of one copy of the model.
Wide model_ranks(const ParallelConfig& r) { return static_cast<Wide>(r.tp) * r.sp * r.pp; }

std::string product_text(const ParallelConfig& r) { return fmt::format("{} * {} * {}", r.tp, r.sp, r.pp); }

/// dp = "auto": tp * sp * pp * dp_out has to divide the world.
std::optional<LayoutProblem> auto_dp_problem(const ParallelConfig& r, int world_size) {
  const Wide per_dp = model_ranks(r) * r.dp_out;
  if (world_size % per_dp == 0) return std::nullopt;
  const Wide below = world_size / per_dp * per_dp;
  const std::string fix = below > 0 ? fmt::format("{} or {}", below, below + per_dp) : fmt::format("{}", per_dp);
  return LayoutProblem{
      "parallel.dp",
      fmt::format("tp * sp * pp * dp_out = {} * {} = {} does not divide the {} ranks of this launch.\n"
                  "  Every data-parallel copy of the model takes tp * sp * pp ranks, and no rank may be left over.\n"
                  "  Fix: launch {} ranks (any multiple of {}), or change parallel.tp, sp, pp or dp_out.",
                  product_text(r), r.dp_out, per_dp, world_size, fix, per_dp)};
}

std::optional<LayoutProblem> given_dp_problem(const ParallelConfig& r, int world_size) {
  const Wide ranks = model_ranks(r) * r.dp;
  if (ranks == world_size) return std::nullopt;
  std::string fix = fmt::format("launch {} ranks", ranks);
  if (world_size % model_ranks(r) == 0) {
    fix += fmt::format(", or set parallel.dp = {} (\"auto\" always fills the launch)", world_size / model_ranks(r));
  }
  return LayoutProblem{"parallel.dp",
                       fmt::format("tp * sp * pp * dp = {} * {} = {}, but this launch has {} ranks.\n"
                                   "  The four degrees give every rank one place; none may be missing or left over.\n"
                                   "  Fix: {}.",
                                   product_text(r), r.dp, ranks, world_size, fix)};
}

std::optional<LayoutProblem> dp_out_problem(const ParallelConfig& r, int dp) {
  if (dp % r.dp_out == 0) return std::nullopt;
  return LayoutProblem{"parallel.dp_out",
                       fmt::format("parallel.dp_out = {} does not divide dp = {}.\n"
                                   "  dp = dp_in * dp_out: each of the dp_out pods holds the same number of copies.\n"
                                   "  Fix: use {}.",
                                   r.dp_out, dp, one_of(divisors(dp)))};
}

}  // namespace

std::vector<LayoutProblem> degree_problems(const Degrees& d) {
  std::vector<LayoutProblem> problems = out_of_range({{"parallel.tp", d.tp},
                                                      {"parallel.sp", d.sp},
                                                      {"parallel.dp_in", d.dp_in},
                                                      {"parallel.pp", d.pp},
                                                      {"parallel.dp_out", d.dp_out},
                                                      {"parallel.ep", d.ep},
                                                      {"parallel.expert_tp", d.expert_tp}});
  if (!problems.empty()) return problems;
  if (static_cast<Wide>(d.tp) * d.sp * d.dp_in * d.pp > kMaxRanks / d.dp_out) {
    problems.push_back({"parallel", "the degrees multiply to more than 2^30 ranks."});
    return problems;
  }
  if (auto problem = expert_problem(d)) problems.push_back(*problem);
  return problems;
}

ResolvedLayout resolve_layout(const ParallelConfig& r, int world_size) {
  CHECK(world_size >= 1, "a launch of {} ranks", world_size);
  ResolvedLayout resolved;
  resolved.problems = out_of_range({{"parallel.tp", r.tp},
                                    {"parallel.sp", r.sp},
                                    {"parallel.pp", r.pp},
                                    {"parallel.dp", r.dp, 0},
                                    {"parallel.dp_out", r.dp_out},
                                    {"parallel.ep", r.ep},
                                    {"parallel.expert_tp", r.expert_tp}});
  if (!resolved.problems.empty()) return resolved;

  std::vector<LayoutProblem>& problems = resolved.problems;
  const bool is_auto = r.dp == 0;
  if (auto problem = is_auto ? auto_dp_problem(r, world_size) : given_dp_problem(r, world_size)) {
    problems.push_back(*problem);
    if (is_auto) return resolved;  // dp is unknown, so nothing more can be said
  }
  const Wide dp_ranks = is_auto ? world_size / model_ranks(r) : Wide{r.dp};
  if (model_ranks(r) * dp_ranks > kMaxRanks) return resolved;
  const int dp = static_cast<int>(dp_ranks);
  if (auto problem = dp_out_problem(r, dp)) {
    problems.push_back(*problem);
    return resolved;  // dp_in is unknown
  }
  const auto as_int = [](int64_t degree) { return static_cast<int>(degree); };
  resolved.degrees = {.tp = as_int(r.tp),
                      .sp = as_int(r.sp),
                      .dp_in = dp / as_int(r.dp_out),
                      .pp = as_int(r.pp),
                      .dp_out = as_int(r.dp_out),
                      .ep = as_int(r.ep),
                      .expert_tp = as_int(r.expert_tp)};
  if (auto problem = expert_problem(resolved.degrees)) problems.push_back(*problem);
  return resolved;
}

void throw_if_any(const std::vector<LayoutProblem>& problems) {
  if (problems.empty()) return;
  std::string text;
  for (const LayoutProblem& problem : problems) {
    if (!text.empty()) text += '\n';
    text += problem.text;
  }
  throw tensor::LayoutError(text);
}

}  // namespace parallel
