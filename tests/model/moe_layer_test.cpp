/// A layer with experts against naive loops, in fp64.

#include "model/moe_layer.h"

#include <cmath>
#include <numeric>

#include "model/routing_statistics.h"
#include "tests/model/moe_models.h"
#include "tests/model/test_model.h"

namespace tests {

using model::Balance;
using model::ModelConfig;
using model::MoeConfig;
using tensor::Dtype;
using tensor::RouterScore;

namespace {

constexpr const char* kName = "layers.1.mlp";

/// The second layer's experts of a whole model.
class LoneMoe {
 public:
  explicit LoneMoe(const ModelConfig& config)
      : model(config, Dtype::fp64, {}, 1),
        layer_store_({}, model.alone.data_parallel),
        layer(config, 1, kName, begin(model.alone.groups()), layer_store_) {
    layer_store_.allocate(model.ops, Dtype::fp64);
    for (parallel::Parameter* parameter : layer_store_.parameters()) {
      tensor::Tensor value = parameter->value();
      fill(value, scaled(random_values(value.numel(), tensor::hash_name(parameter->name()))));
    }
  }

  Values parameter(const std::string& name) const {
    return values_of(layer_store_.at(fmt::format("{}.{}", kName, name)).value());
  }
  bool has(const std::string& name) const { return layer_store_.find(fmt::format("{}.{}", kName, name)) != nullptr; }
  parallel::ParameterStore& store() { return layer_store_; }

  TestModel model;

 private:
  parallel::LayerGroups begin(const parallel::LayerGroups& groups) {
    layer_store_.begin_unit("rest");
    return groups;
  }
  static Values scaled(Values values) {
    for (double& value : values) value *= 0.5;
    return values;
  }
  parallel::ParameterStore layer_store_;

 public:
  model::MoeLayer layer;
};

double activate(tensor::Activation kind, double gate, double up) {
  if (kind == tensor::Activation::relu_squared) return up > 0 ? up * up : 0;
  const double inner = std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate);  // geglu
  return 0.5 * gate * (1 + std::tanh(inner)) * up;
}

double dot_row(const Values& weight, int64_t row, const Values& x) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += weight[static_cast<size_t>(row) * x.size() + i] * x[i];
  return sum;
}

Values naive_mlp(const LoneMoe& moe, const std::string& name, int64_t ffn, const Values& x) {
  const ModelConfig& config = moe.model.config;
  const auto bias = [&](const std::string& matrix, int64_t i) {
    const std::string full = name + "." + matrix + ".bias";
    return moe.has(full) ? moe.parameter(full)[static_cast<size_t>(i)] : 0.0;
  };
  Values hidden;
  for (int64_t i = 0; i < ffn; ++i) {
    const bool gated = is_gated(config.activation);
    const double gate = gated ? dot_row(moe.parameter(name + ".gate.weight"), i, x) + bias("gate", i) : 0;
    hidden.push_back(
        activate(config.activation, gate, dot_row(moe.parameter(name + ".up.weight"), i, x) + bias("up", i)));
  }
  Values y;
  const Values down = moe.parameter(name + ".down.weight");
  for (int64_t i = 0; i < config.hidden_size; ++i) y.push_back(dot_row(down, i, hidden) + bias("down", i));
  return y;
}

Values naive_scores(const MoeConfig& moe, const Values& logits) {
  Values scores;
  double sum = 0;
  for (const double logit : logits) {
    scores.push_back(moe.router == RouterScore::sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit));
    sum += scores.back();
  }
  for (double& score : scores) score /= moe.router == RouterScore::sigmoid ? 1 : sum;
  return scores;
}

/// The best `count` of `candidates`, by repeatedly taking the best that is left.
std::vector<size_t> naive_best(const Values& values, std::vector<size_t> candidates, int64_t count) {
  std::vector<size_t> best;
  while (std::ssize(best) < count) {
    size_t at = 0;
    for (size_t i = 1; i < candidates.size(); ++i) at = values[candidates[i]] > values[candidates[at]] ? i : at;
    best.push_back(candidates[at]);
    candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return best;
}

std::vector<size_t> naive_choice(const MoeConfig& moe, const Values& ranked) {
  const auto num_groups = static_cast<size_t>(moe.num_groups), size = ranked.size() / num_groups;
  Values groups;
  for (size_t g = 0; g < num_groups; ++g) {
    Values members(ranked.begin() + static_cast<std::ptrdiff_t>(g * size),
                   ranked.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(members.rbegin(), members.rend());
    groups.push_back(size == 1 ? members[0] : members[0] + members[1]);
  }
  std::vector<size_t> all(num_groups), candidates;
  std::iota(all.begin(), all.end(), 0);
  std::vector<size_t> chosen = naive_best(groups, all, moe.top_k_groups);
  std::sort(chosen.begin(), chosen.end());
  for (const size_t g : chosen) {
    for (size_t e = g * size; e < (g + 1) * size; ++e) candidates.push_back(e);
  }
  return naive_best(ranked, candidates, moe.top_k);
}

/// y of all tokens, and how many choices were dropped.
struct Naive {
  Values y;
  int64_t num_dropped = 0;
};
Naive naive_moe(const LoneMoe& lone, const Values& x, int64_t num_sequences) {
  const ModelConfig& config = lone.model.config;
  const MoeConfig& moe = config.moe;
  const int64_t num_tokens = std::ssize(x) / config.hidden_size, per_sequence = num_tokens / num_sequences;
  const auto capacity = static_cast<int64_t>(std::ceil(
      moe.capacity_factor * static_cast<double>(per_sequence * moe.top_k) / static_cast<double>(moe.num_experts)));
  std::vector<int64_t> taken;
  Naive naive;
  for (int64_t t = 0; t < num_tokens; ++t) {
    if (t % per_sequence == 0) taken.assign(static_cast<size_t>(moe.num_experts), 0);
    const auto first = x.begin() + t * config.hidden_size;
    const Values of_token(first, first + config.hidden_size);
    Values logits;
    for (int64_t e = 0; e < moe.num_experts; ++e)
      logits.push_back(dot_row(lone.parameter("router.weight"), e, of_token));
    const Values scores = naive_scores(moe, logits);
    Values ranked = scores;
    for (size_t e = 0; e < ranked.size() && lone.has("router.bias"); ++e) ranked[e] += lone.parameter("router.bias")[e];
    const std::vector<size_t> chosen = naive_choice(moe, ranked);
    double sum = 0;
    for (const size_t e : chosen) sum += scores[e];
    Values y(static_cast<size_t>(config.hidden_size), 0.0);
    for (const size_t e : chosen) {
      if (moe.capacity_factor > 0 && taken[e]++ >= capacity) {
        ++naive.num_dropped;
        continue;
      }
      const double weight = scores[e] / (moe.normalize_top_k ? sum : 1) * moe.routed_scaling;
      const Values of_expert = naive_mlp(lone, fmt::format("experts.{}", e), config.expert_ffn_size(), of_token);
      for (size_t i = 0; i < y.size(); ++i) y[i] += weight * of_expert[i];
    }
    if (moe.shared_ffn_hidden_size > 0) {
      const Values shared = naive_mlp(lone, "shared", moe.shared_ffn_hidden_size, of_token);
      for (size_t i = 0; i < y.size(); ++i) y[i] += shared[i];
    }
    naive.y.insert(naive.y.end(), y.begin(), y.end());
  }
  return naive;
}

void expect_matches_naive_loop(const ModelConfig& config, bool drops) {
  constexpr int64_t kSequences = 3;
  LoneMoe moe(config);
  const model::MicroBatch batch = moe.model.upload(random_batch(config, kSequences, 1));
  const Values x = random_values(batch.num_tokens() * config.hidden_size, 4);
  const tensor::Tensor input =
      make_tensor(*moe.model.backend.device, {batch.num_tokens(), config.hidden_size}, Dtype::fp64, x);
  model::RoutingStatistics statistics(config);
  model::StageContext context;
  context.mode = model::Mode::train;
  context.statistics = &statistics;
  model::MoeLayer::Saved saved;

  const Values y = values_of(moe.layer.forward(moe.model.ops, input, batch, context, saved));

  const Naive naive = naive_moe(moe, x, kSequences);
  EXPECT_LE(relative_error(y, naive.y), 1e-13);
  EXPECT_EQ(statistics.layer(1).dropped, static_cast<double>(naive.num_dropped));
  EXPECT_EQ(naive.num_dropped > 0, drops);
}

}  // namespace

TEST(MoeLayer, MatchesNaiveLoopWithSoftmax) { expect_matches_naive_loop(softmax_moe(), false); }
TEST(MoeLayer, MatchesNaiveLoopWithSigmoidGroupsBiasesAndASharedExpert) {
  expect_matches_naive_loop(sigmoid_moe(), false);
}
TEST(MoeLayer, MatchesNaiveLoopWithCapacity) { expect_matches_naive_loop(dropping_moe(), true); }
TEST(MoeLayer, MatchesNaiveLoopWhereEveryTokenTakesEveryExpert) { expect_matches_naive_loop(dense_moe(), false); }

TEST(MoeLayer, DropsNothingWhereACapacityIsNotReached) {
  ModelConfig config = softmax_moe();
  config.moe.capacity_factor = 5;
  expect_matches_naive_loop(config, false);
}

TEST(MoeLayer, RegistersExpertsInAUnitOfTheirOwn) {
  LoneMoe moe(sigmoid_moe());

  ASSERT_EQ(moe.store().units().size(), 2U);
  EXPECT_EQ(moe.store().units()[1]->name, "layers.1.mlp.experts");
  EXPECT_EQ(moe.store().at("layers.1.mlp.experts.5.up.weight").unit().name, "layers.1.mlp.experts");
  EXPECT_EQ(moe.store().at("layers.1.mlp.router.weight").unit().name, "rest");
  EXPECT_EQ(moe.store().at("layers.1.mlp.shared.up.weight").unit().name, "rest");
}

}  // namespace tests
