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

std::vector<Rule> rules_of(const ModelConfig& config, TokenSharding tokens) {
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
  if (tokens == TokenSharding::sharded) {
    rules.push_back({"parallel.tp_sequence", "model.seq_len", config.seq_len,
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

/// "1, 2 or 4": every tp that the model allows.
std::string allowed_tp(const ModelConfig& config, const std::vector<Rule>& rules) {
  std::vector<std::string> allowed;
  for (int64_t tp = 1; tp <= std::max<int64_t>(1, config.num_heads); ++tp) {
    if (all_hold(rules, tp)) allowed.push_back(std::to_string(tp));
  }
  std::string text = allowed.front();
  for (size_t i = 1; i < allowed.size(); ++i) text += (i + 1 < allowed.size() ? ", " : " or ") + allowed[i];
  return text;
}

/// "2 or 4": the divisors of the extent next to `ranks`.
std::string divisors_of(int64_t extent, int64_t ranks) {
  int64_t below = ranks, above = ranks;
  while (extent % below != 0) --below;
  while (above < extent && extent % above != 0) ++above;
  return extent % above == 0 ? fmt::format("{} or {}", below, above) : fmt::format("{}", below);
}

/// The multiples of tp on both sides of the extent.
std::string near_multiples(int64_t extent, int64_t tp) {
  const int64_t below = extent / tp * tp;
  return below > 0 ? fmt::format("{} or {}", below, below + tp) : fmt::format("{}", tp);
}

}  // namespace

std::vector<LayoutProblem> layout_problems(const ModelConfig& config, const parallel::Degrees& degrees,
                                           TokenSharding tokens) {
  const int64_t tp = degrees.tp;
  const std::vector<Rule> rules = rules_of(config, tokens);
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
  for (const Rule& rule : expert_rules_of(config)) {
    const int64_t ranks = std::string_view(rule.key) == "parallel.ep" ? degrees.ep : degrees.expert_tp;
    if (holds(rule, ranks)) continue;
    problems.push_back(
        {rule.key, fmt::format("{} = {} does not divide {} = {}.\n"
                               "  {}\n"
                               "  Fix: set {} = {}, or {} = {}.",
                               rule.key, ranks, rule.size, rule.extent, rule.reason, rule.key,
                               divisors_of(rule.extent, ranks), rule.size, near_multiples(rule.extent, ranks))});
  }
  return problems;
}

}  // namespace model
