#include "tests/trainer/ranks/layout_draw.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "model/layout.h"
#include "parallel/layout.h"
#include "trainer/batch_split.h"
#include "trainer/config_reader.h"
#include "trainer/pipeline_plan.h"

namespace tests {

using model::ModelConfig;
using model::RopeScaling;
using trainer::Config;

namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : bits_(seed) {}

  /// In [low, high]. The modulo's bias is far below what matters; std distributions differ between libraries.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits_() % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(int64_t n) { return between(1, n) == 1; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[between(0, std::ssize(values) - 1)];
  }
  int64_t divisor_of(int64_t n) {
    std::vector<int64_t> divisors;
    for (int64_t d = 1; d <= n; ++d) {
      if (n % d == 0) divisors.push_back(d);
    }
    return divisors[static_cast<size_t>(between(0, std::ssize(divisors) - 1))];
  }

 private:
  std::mt19937_64 bits_;
};

RopeScaling draw_rope_scaling(Dice& dice) {
  using Kind = RopeScaling::Kind;
  RopeScaling scaling;
  scaling.kind = dice.one_of({Kind::none, Kind::linear, Kind::llama3, Kind::yarn});
  if (scaling.kind == Kind::none) return scaling;
  scaling.factor = dice.one_of({1.5, 4.0, 8.0});
  scaling.original_seq_len = dice.one_of({4, 32, 8192});
  return scaling;
}

void draw_position(Dice& dice, ModelConfig& model) {
  using model::Position;
  model.position = dice.one_of({Position::rope, Position::rope, Position::learned, Position::none});
  if (model.position != Position::rope) return;
  model.rope_theta = dice.one_of({10.0, 10'000.0});
  model.rope_fraction = dice.one_of({1.0, 1.0, 0.5, 0.7});
  model.rope_scaling = draw_rope_scaling(dice);
}

/// Of parts that all ranks get the same number of.
int64_t draw_seq_len(Dice& dice, const parallel::ParallelConfig& parallel) {
  const int64_t of_sp = parallel.sp > 1 ? 2 * parallel.sp : 1, of_tp = parallel.tp_sequence ? parallel.tp : 1;
  const int64_t grain = dice.one_in(2) ? std::lcm(of_sp, parallel.sp * of_tp) : of_sp * of_tp;
  return grain * dice.between(1, std::max<int64_t>(2, 17 / grain));
}

/// Sizes lean towards what tp ranks can share out, so that most draws are legal.
void draw_sizes(Dice& dice, const parallel::ParallelConfig& parallel, ModelConfig& model) {
  const int64_t tp = parallel.tp;
  model.vocab_size = dice.one_in(3) ? dice.between(1, tp) : dice.between(2, 67);
  model.num_layers = dice.between(1, dice.one_in(3) ? 7 : 3);
  model.hidden_size = dice.between(3, 24);
  const int64_t least_heads = parallel.sp_method == parallel::SpMethod::ulysses ? parallel.sp : 1;
  model.num_heads = tp * dice.between(least_heads, std::max<int64_t>(least_heads + 1, tp > 2 ? 2 : 4));
  model.num_kv_heads = dice.one_of<int64_t>({0, 1, dice.divisor_of(model.num_heads), dice.divisor_of(tp)});
  model.head_dim = dice.one_in(6) ? 0 : dice.between(1, 8);
  model.ffn_hidden_size = tp * dice.between(1, 24 / tp);
  model.seq_len = draw_seq_len(dice, parallel);
}

/// Sizes lean towards what ep and expert_tp ranks can share out.
model::MoeConfig draw_moe(Dice& dice, const parallel::ParallelConfig& parallel, int64_t tp) {
  using model::Balance, tensor::RouterScore;
  model::MoeConfig moe;
  moe.num_experts = parallel.ep * dice.between(1, parallel.ep > 2 ? 2 : 5);
  moe.top_k = dice.between(1, std::min<int64_t>(3, moe.num_experts));
  if (parallel.expert_tp > 1 || dice.one_in(2)) moe.ffn_hidden_size = parallel.expert_tp * dice.between(1, 8);
  moe.shared_ffn_hidden_size = dice.one_in(3) ? tp * dice.between(1, 3) : 0;
  moe.router = dice.one_of({RouterScore::softmax, RouterScore::sigmoid});
  moe.normalize_top_k = dice.one_in(2);
  moe.routed_scaling = dice.one_of({1.0, 2.5});
  moe.num_groups = dice.divisor_of(moe.num_experts);
  moe.top_k_groups = dice.between(1, moe.num_groups);
  moe.balance = dice.one_of({Balance::none, Balance::aux, Balance::bias});
  moe.aux_loss_coef = dice.one_of({0.0, 0.1, 1.0});
  moe.z_loss_coef = dice.one_of({0.0, 0.1});
  moe.bias_update_rate = dice.one_of({0.01, 0.1});
  moe.capacity_factor = dice.one_in(3) ? dice.one_of({0.5, 1.0, 1.5}) : 0;
  moe.layers = dice.one_of({"all", "all", "every:2", "after:1"});
  return moe;
}

ModelConfig draw_model(Dice& dice, const parallel::ParallelConfig& parallel) {
  using tensor::Activation, tensor::NormKind;
  ModelConfig model;
  draw_sizes(dice, parallel, model);
  draw_position(dice, model);
  model.norm = dice.one_of({NormKind::rms_norm, NormKind::layer_norm});
  model.activation = dice.one_of(
      {Activation::swiglu, Activation::gelu_tanh, Activation::gelu_erf, Activation::geglu, Activation::relu_squared});
  model.qk_norm = dice.one_in(3);
  model.bias = dice.one_in(2);
  model.tie_embeddings = dice.one_in(2);
  model.dropout = dice.one_of({0.0, 0.1, 0.5});
  model.sliding_window = dice.one_in(3) ? dice.between(1, model.seq_len) : 0;
  model.init_std = dice.one_of({0.02, 0.2, 0.5});
  return model;
}

parallel::ParallelConfig draw_parallel(Dice& dice, int64_t num_ranks, bool has_experts) {
  using parallel::ReduceEvery, parallel::Reshard, parallel::SpMethod;
  const bool leaves_room = has_experts && dice.one_in(2);  // for expert axes, beside pp and dp_out
  const int64_t pp = leaves_room || dice.one_in(3) ? 1 : dice.divisor_of(num_ranks);
  const int64_t sp = dice.one_in(2) ? 1 : dice.divisor_of(num_ranks / pp);
  const int64_t tp = dice.divisor_of(num_ranks / pp / sp), dp = num_ranks / pp / sp / tp;
  parallel::ParallelConfig parallel;
  parallel.tp = tp;
  parallel.sp = sp;
  parallel.sp_method = dice.one_of({SpMethod::ring, SpMethod::ulysses, SpMethod::all_gather});
  parallel.pp = pp;
  parallel.dp = dice.one_in(2) ? dp : 0;
  parallel.dp_out = !leaves_room && dice.one_in(2) ? dice.divisor_of(dp) : 1;
  if (has_experts) {
    const int64_t block = tp * sp * dp / parallel.dp_out;
    parallel.ep = std::max(dice.divisor_of(block), dice.divisor_of(block));
    if (dice.one_in(2)) parallel.ep = dice.divisor_of(parallel.ep);
    parallel.expert_tp = dice.divisor_of(block / parallel.ep);
  }
  parallel.zero_stage = dice.between(0, 3);
  parallel.zero_reshard = dice.one_of({Reshard::forward, Reshard::never, Reshard::stage});
  parallel.reduce_every = dice.one_of({ReduceEvery::step, ReduceEvery::micro_batch});
  parallel.bucket_mb = dice.one_of({0.0, 0.0, 0.001, 0.01});
  parallel.tp_sequence = dice.one_in(2);
  const std::vector<std::string>& schedules = parallel::schedule_names();
  parallel.schedule = schedules[static_cast<size_t>(dice.between(0, std::ssize(schedules) - 1))];
  parallel.virtual_stages = dice.one_in(2) ? 0 : dice.between(1, 3);
  parallel.microbatch_group = dice.one_in(3) ? dice.between(1, 9) : 0;
  return parallel;
}

/// Layers of each stage, anyhow: some stages may be empty.
std::vector<int64_t> draw_stages(Dice& dice, int64_t num_layers, int64_t num_stages) {
  std::vector<int64_t> stages(static_cast<size_t>(num_stages), 0);
  for (int64_t layer = 0; layer < num_layers; ++layer) ++stages[static_cast<size_t>(dice.between(0, num_stages - 1))];
  return stages;
}

trainer::TrainConfig draw_training(Dice& dice, int64_t dp) {
  using model::Recompute;
  trainer::TrainConfig train;
  train.steps = 10;
  train.micro_batch_size = dice.between(0, 2);
  train.global_batch_size =
      dp * std::max<int64_t>(1, train.micro_batch_size) * dice.between(1, dice.one_in(3) ? 10 : 5);
  train.max_grad_norm = dice.one_of({0.0, 0.01, 1.0});
  train.recompute = dice.one_of({Recompute::none, Recompute::selective, Recompute::full});
  return train;
}

/// May be illegal.
LayoutDraw draw_once(Dice& dice, uint64_t seed, int most_ranks) {
  // Half of the draws take all ranks: these are where most can go wrong.
  const auto num_ranks = static_cast<int>(dice.one_in(2) ? most_ranks : dice.between(1, most_ranks));
  LayoutDraw draw{.seed = seed, .num_ranks = num_ranks, .config = {}};
  Config& config = draw.config;
  config.run.name = fmt::format("seed_{}", seed);
  config.run.seed = static_cast<int64_t>(seed % (uint64_t{1} << 62));
  const bool has_experts = dice.one_in(2);
  config.parallel = draw_parallel(dice, num_ranks, has_experts);
  config.model = draw_model(dice, config.parallel);
  if (has_experts) config.model.moe = draw_moe(dice, config.parallel, config.parallel.tp);
  parallel::ParallelConfig& parallel = config.parallel;
  config.train = draw_training(dice, num_ranks / parallel.tp / parallel.sp / parallel.pp);
  if (dice.one_in(4)) {
    const int64_t usual = parallel::default_virtual_stages(parallel.schedule);
    const int64_t per_rank = parallel.virtual_stages > 0 ? parallel.virtual_stages : usual;
    parallel.stages = draw_stages(dice, config.model.num_layers, parallel.pp * per_rank);
  }
  config.precision.compute = tensor::Dtype::fp64;
  config.optimizer.lr = dice.one_of({1e-3, 1e-2});
  config.optimizer.weight_decay = dice.one_of({0.0, 0.1});
  config.lr_schedule.warmup_steps = dice.between(0, 2);
  config.data.train = {{.path = "synthetic"}};
  config.data.document_mask = dice.one_in(2);
  return draw;
}

/// What a user would get who runs the printed TOML; nothing where the program would refuse it.
std::optional<Config> read_back(const LayoutDraw& draw) {
  try {
    return trainer::parse_config(trainer::to_toml(draw.config), draw.config.run.name);
  } catch (const tensor::ConfigError&) {
    return std::nullopt;
  }
}

bool fits(const Config& config, int num_ranks) {
  const parallel::ResolvedLayout layout = parallel::resolve_layout(config.parallel, num_ranks);
  const auto tokens = config.parallel.tp_sequence ? parallel::TokenSharding::sharded : parallel::TokenSharding::whole;
  if (!layout.problems.empty() ||
      !model::layout_problems(config.model, layout.degrees, tokens, config.parallel.sp_method).empty())
    return false;
  const int64_t num_microbatches = trainer::split_batch(config, layout.degrees.dp()).num_microbatches;
  return trainer::pipeline_problems(config, layout.degrees, num_microbatches).empty();
}

}  // namespace

LayoutDraw draw_layout(uint64_t seed, int most_ranks) {
  constexpr int kMostTries = 1000;
  Dice dice(seed);
  for (int i = 0; i < kMostTries; ++i) {
    LayoutDraw draw = draw_once(dice, seed, most_ranks);
    const std::optional<Config> config = read_back(draw);
    if (!config || !fits(*config, draw.num_ranks)) continue;
    draw.config = *config;
    return draw;
  }
  throw tensor::InternalError(fmt::format("seed {}: none of {} draws was legal", seed, kMostTries));
}

LayoutDraw draw_other_layout(const LayoutDraw& first, uint64_t seed, int most_ranks) {
  constexpr int kMostTries = 10'000;
  Dice dice(seed);
  for (int i = 0; i < kMostTries; ++i) {
    LayoutDraw draw = first;
    draw.num_ranks = static_cast<int>(dice.between(1, most_ranks));
    draw.config.parallel = draw_parallel(dice, draw.num_ranks, first.config.model.moe.num_experts > 0);
    draw.config.train.micro_batch_size = dice.between(0, 2);
    const std::optional<Config> config = read_back(draw);
    if (!config) continue;
    const parallel::ResolvedLayout layout = parallel::resolve_layout(config->parallel, draw.num_ranks);
    const int64_t grain = layout.degrees.dp() * std::max<int64_t>(1, config->train.micro_batch_size);
    if (!layout.problems.empty() || config->train.global_batch_size % grain != 0) continue;
    if (!fits(*config, draw.num_ranks)) continue;
    draw.config = *config;
    return draw;
  }
  throw tensor::InternalError(fmt::format("seed {}: no other layout was found", seed));
}

}  // namespace tests
