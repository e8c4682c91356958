#include "trainer/config_checks.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "parallel/schedule.h"
#include "trainer/nearest.h"
#include "trainer/printable.h"

namespace trainer {
namespace {

struct Contradiction {
  std::vector<std::string> keys;  ///< paths
  std::string what, why, fix;
};

class Checks {
 public:
  Checks(const Config& config, const ConfigPlaces& places, Findings& findings)
      : config_(config), places_(places), findings_(findings) {}

  void run() {
    run_name();
    heads();
    rotary();
    rope_scaling();
    experts();
    expert_groups();
    shared_out_experts();
    batch();
    schedule();
    evaluation();
    source_weights();
    pipeline_schedule();
  }

 private:
  /// Silent where one of the keys was already reported: its value is the default, not what the user meant.
  void refuse_if(bool is_wrong, const Contradiction& found, tensor::ExitCode code = tensor::ExitCode::config) {
    if (!is_wrong) return;
    for (const std::string& key : found.keys)
      if (places_.is_unusable(key)) return;
    const std::string place = place_of(found.keys);
    findings_.add({place, found.what, found.why, found.fix}, code);
  }

  /// Of the first key that was given; a --set comes before the file, which it was meant to change.
  std::string place_of(const std::vector<std::string>& keys) const {
    std::string place;
    for (const std::string& key : keys) {
      if (!places_.is_given(key)) continue;
      const bool is_override = places_.of(key).rfind("--set", 0) == 0;
      if (place.empty() || is_override) place = places_.of(key);
    }
    return place.empty() ? places_.of(keys.front()) : place;
  }

  void run_name() {
    static const std::regex allowed("[A-Za-z0-9._-]{1,100}");
    const std::string& name = config_.run.name;
    const bool is_usable = name.size() <= 100 && std::regex_match(name, allowed) && name[0] != '.';
    refuse_if(!is_usable, {{"run.name"},
                           fmt::format("run.name = \"{}\" is not usable as the name of a folder.", printable(name)),
                           "A name has letters, digits, '.', '_' and '-', 100 at most, and no '.' in front.",
                           "set run.name, or rename the config file that it is taken from."});
  }

  void heads() {
    const model::ModelConfig& m = config_.model;
    refuse_if(m.head_dim == 0 && m.hidden_size % m.num_heads != 0,
              {{"model.num_heads", "model.hidden_size", "model.preset"},
               fmt::format("model.num_heads = {} does not divide model.hidden_size = {}.", m.num_heads, m.hidden_size),
               "Without model.head_dim, a head is hidden_size / num_heads wide.",
               fmt::format("use {} heads, or set model.head_dim.", divisors_near(m.hidden_size, m.num_heads))});
    refuse_if(m.num_heads % m.kv_heads() != 0,
              {{"model.num_kv_heads", "model.num_heads", "model.preset"},
               fmt::format("model.num_kv_heads = {} does not divide model.num_heads = {}.", m.kv_heads(), m.num_heads),
               "Every key-value head serves the same number of query heads.",
               fmt::format("use {}.", divisors_near(m.num_heads, m.kv_heads()))});
  }

  void rotary() {
    const model::ModelConfig& m = config_.model;
    if (m.position != model::Position::rope) return;
    if (m.head_dim == 0 && m.hidden_size % m.num_heads != 0) return;  // reported by heads()
    refuse_if(m.rope_fraction == 1 && m.head_size() % 2 != 0,
              {{"model.head_dim", "model.num_heads", "model.hidden_size", "model.preset"},
               fmt::format("a head is {} wide, which RoPE cannot rotate.", m.head_size()),
               "RoPE turns pairs of features, so that the width of a head must be even.",
               "choose an even model.head_dim, or model.position = \"learned\"."});
    refuse_if(m.rope_fraction < 1 && m.rotary_dim() < 2,
              {{"model.rope_fraction", "model.head_dim"},
               fmt::format("model.rope_fraction = {} of a head that is {} wide leaves nothing to rotate.",
                           m.rope_fraction, m.head_size()),
               "RoPE turns pairs of features.",
               "raise rope_fraction, or set model.position = \"none\"."});
  }

  void rope_scaling() {
    using Kind = model::RopeScaling::Kind;
    const model::RopeScaling& scaling = config_.model.rope_scaling;
    const std::string path = "model.rope_scaling.";
    refuse_if(scaling.kind != Kind::none && config_.model.position != model::Position::rope,
              {{path + "kind", "model.position"},
               "model.rope_scaling scales RoPE, but model.position is not \"rope\".",
               "",
               "set model.position = \"rope\", or remove [model.rope_scaling]."});
    refuse_if(scaling.kind == Kind::none && scaling.factor != 1,
              {{path + "factor"},
               fmt::format("model.rope_scaling.factor = {} has no effect with kind = \"none\".", scaling.factor),
               "",
               "set kind to linear, llama3 or yarn, or remove the factor."});
    refuse_if(scaling.kind == Kind::llama3 && scaling.low_freq_factor >= scaling.high_freq_factor,
              {{path + "low_freq_factor", path + "high_freq_factor"},
               fmt::format("model.rope_scaling.low_freq_factor = {} must be less than high_freq_factor = {}.",
                           scaling.low_freq_factor, scaling.high_freq_factor),
               "Between the two, frequencies go smoothly from scaled to kept.",
               "published models use 1 and 4."});
    refuse_if(scaling.kind == Kind::yarn && scaling.beta_slow >= scaling.beta_fast,
              {{path + "beta_slow", path + "beta_fast"},
               fmt::format("model.rope_scaling.beta_slow = {} must be less than beta_fast = {}.", scaling.beta_slow,
                           scaling.beta_fast),
               "Between the two, frequencies go smoothly from scaled to kept.",
               "published models use 1 and 32."});
  }

  void experts() {
    const model::MoeConfig& moe = config_.model.moe;
    refuse_if(moe.num_experts > 0 && moe.top_k > moe.num_experts,
              {{"model.moe.top_k", "model.moe.num_experts"},
               fmt::format("model.moe.top_k = {} is more than model.moe.num_experts = {}.", moe.top_k, moe.num_experts),
               "A token takes top_k different experts of a layer.",
               fmt::format("use 1 to {}.", moe.num_experts)});
    refuse_if(moe.num_experts > 1 && moe.top_k == 1 && moe.normalize_top_k,
              {{"model.moe.top_k", "model.moe.normalize_top_k"},
               "model.moe.top_k = 1 with normalize_top_k = true gives every choice the same weight.",
               "A router learns through the weights of its choices, and would learn nothing.",
               "set normalize_top_k = false, or top_k = 2 or more."});
    refuse_if(
        !model::parse_moe_layers(moe.layers),
        {{"model.moe.layers"},
         fmt::format("model.moe.layers = \"{}\" must be \"all\", \"every:N\" or \"after:N\".", printable(moe.layers)),
         "It says which layers have experts: all, each Nth, or all but the first N.",
         "\"every:2\" puts experts into every second layer."});
  }

  void shared_out_experts() {
    const parallel::ParallelConfig& p = config_.parallel;
    refuse_if(config_.model.moe.num_experts == 0 && (p.ep > 1 || p.expert_tp > 1),
              {{p.ep > 1 ? "parallel.ep" : "parallel.expert_tp", "model.moe.num_experts"},
               fmt::format("parallel.ep = {} and expert_tp = {} share out experts, but the model has none.", p.ep,
                           p.expert_tp),
               "model.moe.num_experts is 0.",
               "set both to 1, or give the model experts."},
              tensor::ExitCode::layout);
  }

  void expert_groups() {
    const model::MoeConfig& moe = config_.model.moe;
    if (moe.num_experts == 0) return;
    refuse_if(moe.num_experts % moe.num_groups != 0,
              {{"model.moe.num_groups", "model.moe.num_experts"},
               fmt::format("model.moe.num_groups = {} does not divide model.moe.num_experts = {}.", moe.num_groups,
                           moe.num_experts),
               "Groups hold equally many experts.",
               fmt::format("use {}.", divisors_near(moe.num_experts, moe.num_groups))});
    refuse_if(moe.top_k_groups > moe.num_groups,
              {{"model.moe.top_k_groups", "model.moe.num_groups"},
               fmt::format("model.moe.top_k_groups = {} is more than model.moe.num_groups = {}.", moe.top_k_groups,
                           moe.num_groups),
               "A token takes its experts from top_k_groups of the groups.",
               fmt::format("use 1 to {}.", moe.num_groups)});
    const int64_t within = moe.top_k_groups * (moe.num_experts / moe.num_groups);
    refuse_if(moe.num_experts % moe.num_groups == 0 && moe.top_k <= moe.num_experts && moe.top_k > within,
              {{"model.moe.top_k_groups", "model.moe.top_k", "model.moe.num_groups"},
               fmt::format("model.moe.top_k = {}, but top_k_groups = {} groups hold {} experts.", moe.top_k,
                           moe.top_k_groups, within),
               "A token takes its experts from top_k_groups of the groups.",
               "raise top_k_groups, or lower top_k or num_groups."});
  }

  void batch() {
    const TrainConfig& train = config_.train;
    refuse_if(train.micro_batch_size != 0 && train.global_batch_size % train.micro_batch_size != 0,
              {{"train.micro_batch_size", "train.global_batch_size"},
               fmt::format("train.micro_batch_size = {} does not divide train.global_batch_size = {}.",
                           train.micro_batch_size, train.global_batch_size),
               "A step is a whole number of micro-batches.",
               fmt::format("use {}.", divisors_near(train.global_batch_size, train.micro_batch_size))});
  }

  void schedule() {
    const LrScheduleConfig& s = config_.lr_schedule;
    const int64_t steps = config_.train.steps;
    refuse_if(
        s.min_lr > config_.optimizer.lr,
        {{"lr_schedule.min_lr", "optimizer.lr"},
         fmt::format("lr_schedule.min_lr = {} is greater than optimizer.lr = {}.", s.min_lr, config_.optimizer.lr),
         "The learning rate decays from optimizer.lr to min_lr.",
         "lower min_lr; a tenth of lr is common."});
    refuse_if(
        s.kind == LrScheduleKind::constant && (s.decay_steps != 0 || s.min_lr != 0),
        {{"lr_schedule.decay_steps", "lr_schedule.min_lr", "lr_schedule.kind"},
         fmt::format("lr_schedule.kind = \"constant\" with decay_steps = {} and min_lr = {}.", s.decay_steps, s.min_lr),
         "A constant learning rate never decays.",
         "remove both, or use linear, cosine or wsd."});
    refuse_if(s.warmup_steps > steps,
              {{"lr_schedule.warmup_steps", "train.steps"},
               fmt::format("lr_schedule.warmup_steps = {} is more than train.steps = {}.", s.warmup_steps, steps),
               "The run would end before the learning rate reaches optimizer.lr.",
               "warm up for fewer steps."});
    const bool is_too_long = s.warmup_steps <= steps && s.decay_steps > steps - s.warmup_steps;
    refuse_if(is_too_long && s.kind != LrScheduleKind::constant,
              {{"lr_schedule.decay_steps", "lr_schedule.warmup_steps", "train.steps"},
               fmt::format("lr_schedule.warmup_steps = {} and decay_steps = {} are more than train.steps = {}.",
                           s.warmup_steps, s.decay_steps, steps),
               "The run would end before the decay does.",
               fmt::format("use decay_steps = {} or less, or 0.", steps - s.warmup_steps)});
  }

  void evaluation() {
    const data::DataConfig& d = config_.data;
    const bool has_fraction = d.valid_fraction > 0;
    refuse_if(!d.valid.empty() && has_fraction,
              {{"data.valid_fraction", "data.valid"},
               fmt::format("data.valid and data.valid_fraction = {} are both given.", d.valid_fraction),
               "The evaluation set is either files of its own or the end of the train files.",
               "keep one of the two."});
    refuse_if(config_.train.eval_every > 0 && d.valid.empty() && !has_fraction,
              {{"train.eval_every", "data.valid", "data.valid_fraction"},
               fmt::format("train.eval_every = {}, but there is nothing to evaluate on.", config_.train.eval_every),
               "Neither data.valid nor data.valid_fraction is given.",
               "add data.valid = \"FILE\" or data.valid_fraction = 0.01, or set eval_every = 0."});
  }

  void source_weights() {
    size_t num_weights = 0;
    for (const data::DataSource& source : config_.data.train) num_weights += source.weight > 0 ? 1 : 0;
    const size_t num_sources = config_.data.train.size();
    refuse_if(num_weights != 0 && num_weights != num_sources,
              {{"data.train"},
               fmt::format("data.train gives a weight to {} of its {} sources.", num_weights, num_sources),
               "Weights say how the samples are shared between sources; with none, each file is read once per epoch.",
               "give a weight to every source, or to none."});
  }

  void pipeline_schedule() {
    const std::string& name = config_.parallel.schedule;
    const std::vector<std::string>& names = parallel::schedule_names();
    const bool is_known = std::find(names.begin(), names.end(), name) != names.end() || name.starts_with("file:");
    const std::string close = nearest(name, names);
    refuse_if(!is_known,
              {{"parallel.schedule"},
               fmt::format("parallel.schedule = \"{}\" must be {}, or \"file:PATH\".", printable(name), join_or(names)),
               "It is the order in which pipeline stages take their micro-batches.",
               close.empty() ? "choose one of these." : fmt::format("did you mean \"{}\"?", close)});
  }

  /// The divisors of n that are closest to x: "4, 6 or 8".
  static std::string divisors_near(int64_t n, int64_t x) {
    std::vector<std::string> below, above;
    for (int64_t i = std::min(x, n); i >= 1 && below.size() < 2; --i)
      if (n % i == 0) below.insert(below.begin(), std::to_string(i));
    for (int64_t i = x + 1; i <= n && above.size() < 2; ++i)
      if (n % i == 0) above.push_back(std::to_string(i));
    below.insert(below.end(), above.begin(), above.end());
    return join_or(below);
  }

  const Config& config_;
  const ConfigPlaces& places_;
  Findings& findings_;
};

}  // namespace

void check_config(const Config& config, const ConfigPlaces& places, Findings& findings) {
  Checks(config, places, findings).run();
}

}  // namespace trainer
