#include "model/layout.h"

#include <algorithm>

#include "tensor/error.h"

namespace model {

using parallel::LayoutProblem;
using parallel::TokenSharding;

namespace {

/// One thing that tp ranks share out.
struct Rule {
  const char* key;   ///< "parallel.tp": the number of ranks
  const char* size;  ///< "model.num_heads"
  int64_t extent;
  const char* reason;
  bool may_be_copied = false;  ///< tp may be a multiple of the extent as well
  const char* way_out = "";    ///< another fix
};

std::vector<Rule> rules_of(const ModelConfig& config, int64_t sp, TokenSharding tokens) {
  std::vector<Rule> rules = {
      {"parallel.tp", "model.num_heads", config.num_heads, "Every tensor-parallel rank owns the same number of heads."},
      {"parallel.tp", "model.num_kv_heads", config.kv_heads(),
       "The ranks share the kv heads out, or as many ranks each hold a copy of one: one number divides the other.",
       true},
  };
  if (config.num_moe_layers() < config.num_layers) {
    rules.push_back({"parallel.tp", "model.ffn_hidden_size", config.ffn_size(),
                     "Every tensor-parallel rank owns the same number of hidden units of the feed-forward layer."});
  }
  if (config.num_moe_layers() > 0 && config.moe.shared_ffn_hidden_size > 0) {
    rules.push_back({"parallel.tp", "model.moe.shared_ffn_hidden_size", config.moe.shared_ffn_hidden_size,
                     "Every tensor-parallel rank owns the same number of hidden units of the shared expert."});
  }
  if (tokens == TokenSharding::sharded && config.seq_len % sp == 0) {
    rules.push_back({"parallel.tp_sequence", sp == 1 ? "model.seq_len" : "model.seq_len / parallel.sp",
                     config.seq_len / sp,
                     "With parallel.tp_sequence every tensor-parallel rank holds the same number of tokens between "
                     "matrix products.",
                     false, ", or turn parallel.tp_sequence off"});
  }
  return rules;
}

bool holds(const Rule& rule, int64_t tp) {
  return rule.extent % tp == 0 || (rule.may_be_copied && tp % rule.extent == 0);
}

bool all_hold(const std::vector<Rule>& rules, int64_t tp) {
  for (const Rule& rule : rules) {
    if (!holds(rule, tp)) return false;
  }
  return true;
}

/// What ranks of ep and expert_tp share out.
std::vector<Rule> expert_rules_of(const ModelConfig& config) {
  if (config.num_moe_layers() == 0) return {};
  return {{"parallel.ep", "model.moe.num_experts", config.moe.num_experts,
           "Every expert-parallel rank holds the same number of experts."},
          {"parallel.expert_tp", config.moe.ffn_hidden_size > 0 ? "model.moe.ffn_hidden_size" : "model.ffn_hidden_size",
           config.expert_ffn_size(), "Each of these ranks owns the same number of hidden units of an expert."}};
}

/// "1, 2 or 4": every number from 1 to `most` that is allowed.
template <class Allowed>
std::string one_of(int64_t most, const Allowed& is_allowed) {
  std::vector<std::string> allowed;
  for (int64_t n = 1; n <= most; ++n) {
    if (is_allowed(n)) allowed.push_back(std::to_string(n));
  }
  std::string text = allowed.empty() ? "1" : allowed.front();
  for (size_t i = 1; i < allowed.size(); ++i) text += (i + 1 < allowed.size() ? ", " : " or ") + allowed[i];
  return text;
}

/// Every tp that the model allows.
std::string allowed_tp(const ModelConfig& config, const std::vector<Rule>& rules) {
  return one_of(std::max<int64_t>(1, config.num_heads), [&](int64_t tp) { return all_hold(rules, tp); });
}

/// The multiples of n on both sides of the extent.
std::string near_multiples(int64_t extent, int64_t n) {
  const int64_t below = extent / n * n;
  return below > 0 ? fmt::format("{} or {}", below, below + n) : fmt::format("{}", n);
}

std::vector<LayoutProblem> tensor_problems(const ModelConfig& config, const std::vector<Rule>& rules, int64_t tp) {
  std::vector<LayoutProblem> problems;
  for (const Rule& rule : rules) {
    if (holds(rule, tp)) continue;
    problems.push_back(
        {rule.key, fmt::format("parallel.tp = {} does not {} {} = {}.\n"
                               "  {}\n"
                               "  Fix: set parallel.tp = {}, or {} = {}{}.",
                               tp, rule.may_be_copied ? "fit" : "divide", rule.size, rule.extent, rule.reason,
                               allowed_tp(config, rules), rule.size, near_multiples(rule.extent, tp), rule.way_out)});
  }
  return problems;
}

/// "2 or 4": the divisors of the extent next to n.
std::string near_divisors(int64_t extent, int64_t n) {
  int64_t below = n, above = n;
  while (extent % below != 0) --below;
  while (above < extent && extent % above != 0) ++above;
  return extent % above == 0 ? fmt::format("{} or {}", below, above) : fmt::format("{}", below);
}

std::vector<LayoutProblem> expert_problems(const ModelConfig& config, const parallel::Degrees& degrees) {
  std::vector<LayoutProblem> problems;
  for (const Rule& rule : expert_rules_of(config)) {
    const int64_t ranks = std::string_view(rule.key) == "parallel.ep" ? degrees.ep : degrees.expert_tp;
    if (holds(rule, ranks)) continue;
    problems.push_back(
        {rule.key, fmt::format("{} = {} does not divide {} = {}.\n"
                               "  {}\n"
                               "  Fix: set {} = {}, or {} = {}.",
                               rule.key, ranks, rule.size, rule.extent, rule.reason, rule.key,
                               near_divisors(rule.extent, ranks), rule.size, near_multiples(rule.extent, ranks))});
  }
  return problems;
}

LayoutProblem half_chunk_problem(int64_t seq_len, int64_t sp) {
  const auto is_allowed = [&](int64_t n) { return n == 1 || seq_len % (2 * n) == 0; };
  return {"parallel.sp", fmt::format("parallel.sp = {0} does not cut model.seq_len = {1} into 2 * {0} equal parts.\n"
                                     "  Every sequence-parallel rank holds an early and a late part of each sequence: "
                                     "that gives all the same work.\n"
                                     "  Fix: set parallel.sp = {2}, or model.seq_len = {3}.",
                                     sp, seq_len, one_of(seq_len / 2, is_allowed), near_multiples(seq_len, 2 * sp))};
}

LayoutProblem too_few_heads(int64_t num_heads, int64_t sp, int64_t tp) {
  return {"parallel.sp_method",
          fmt::format("parallel.sp * parallel.tp = {} * {} = {} is more than model.num_heads = {}.\n"
                      "  With parallel.sp_method = \"ulysses\" every rank attends with heads of its own.\n"
                      "  Fix: set parallel.sp = {}{}, or parallel.sp_method = \"ring\" or \"all_gather\".",
                      sp, tp, sp * tp, num_heads, std::max<int64_t>(1, num_heads / tp),
                      num_heads / tp > 1 ? " or less" : "")};
}

}  // namespace

std::vector<LayoutProblem> layout_problems(const ModelConfig& config, const parallel::Degrees& degrees,
                                           TokenSharding tokens, parallel::SpMethod sp_method) {
  const int64_t tp = degrees.tp, sp = degrees.sp;
  std::vector<LayoutProblem> problems = tensor_problems(config, rules_of(config, sp, tokens), tp);
  const std::vector<LayoutProblem> of_experts = expert_problems(config, degrees);
  problems.insert(problems.end(), of_experts.begin(), of_experts.end());
  if (sp == 1) return problems;
  if (config.seq_len % (2 * sp) != 0) problems.push_back(half_chunk_problem(config.seq_len, sp));
  if (sp_method == parallel::SpMethod::ulysses && sp * tp > config.num_heads) {
    problems.push_back(too_few_heads(config.num_heads, sp, tp));
  }
  return problems;
}

}  // namespace model
