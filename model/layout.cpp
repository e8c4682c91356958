#include "model/layout.h"

#include <algorithm>

#include "tensor/error.h"

namespace model {

using parallel::LayoutProblem;
using parallel::TokenSharding;

namespace {

/// One thing that tp ranks share out.
struct Rule {
  const char* key;   ///< that a mistake points at
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
      {"parallel.tp", "model.ffn_hidden_size", config.ffn_size(),
       "Every tensor-parallel rank owns the same number of hidden units of the feed-forward layer."},
  };
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
  return problems;
}

}  // namespace model
