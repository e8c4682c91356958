#include "trainer/config_keys.h"

namespace trainer {
namespace {

constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();  // token ids and positions are int32
constexpr double kLargest = 1e30;
constexpr RealRange kPositive = {.min = 0, .max = kLargest, .excludes_min = true};
constexpr RealRange kNotNegative = {.min = 0, .max = kLargest};
constexpr RealRange kBelowOne = {.min = 0, .max = 1, .excludes_max = true};

void visit_keys(KeyVisitor& keys, RunConfig& run) {
  keys.text({"name", "the name of the run; empty: that of the config file"}, run.name);
  keys.text({"dir", "the folder of everything the run writes; empty: runs/NAME"}, run.dir);
  keys.integer({"seed", "the seed of initial weights, data order and dropout"}, run.seed, {.min = 0});
}

void visit_keys(KeyVisitor& keys, model::RopeScaling& scaling) {
  using Kind = model::RopeScaling::Kind;
  keys.choice({"kind", "how RoPE is stretched to longer contexts"}, scaling.kind,
              {{"none", Kind::none}, {"linear", Kind::linear}, {"llama3", Kind::llama3}, {"yarn", Kind::yarn}});
  keys.real({"factor", "new context / original context"}, scaling.factor, {.min = 1, .max = 1e6});
  keys.integer({"original_seq_len", "the context before scaling, in tokens (llama3, yarn)"}, scaling.original_seq_len,
               {.min = 1, .max = kMaxId});
  keys.real({"low_freq_factor", "original_seq_len / the wavelength above which all is scaled (llama3)"},
            scaling.low_freq_factor, kPositive);
  keys.real({"high_freq_factor", "original_seq_len / the wavelength below which nothing is scaled (llama3)"},
            scaling.high_freq_factor, kPositive);
  keys.real({"beta_fast", "the number of rotations above which nothing is scaled (yarn)"}, scaling.beta_fast,
            kPositive);
  keys.real({"beta_slow", "the number of rotations below which all is scaled (yarn)"}, scaling.beta_slow, kPositive);
  keys.real({"attention_factor", "the scale of cos and sin (yarn); 0: 0.1 ln(factor) + 1"}, scaling.attention_factor,
            kNotNegative);
}

void visit_shape(KeyVisitor& keys, model::ModelConfig& model) {
  keys.integer({"vocab_size", "the number of token ids"}, model.vocab_size, {.min = 1, .max = kMaxId});
  keys.integer({"num_layers", "the number of transformer blocks"}, model.num_layers, {.min = 1, .max = 10'000});
  keys.integer({"hidden_size", "the width of the residual stream"}, model.hidden_size, {.min = 1, .max = 1 << 20});
  keys.integer({"num_heads", "the number of query heads"}, model.num_heads, {.min = 1, .max = 1 << 16});
  keys.integer({"num_kv_heads", "the number of key and value heads; 0: num_heads"}, model.num_kv_heads,
               {.min = 0, .max = 1 << 16});
  keys.integer({"head_dim", "the width of a head; 0: hidden_size / num_heads"}, model.head_dim,
               {.min = 0, .max = 1 << 16});
  keys.integer({"ffn_hidden_size", "the inner width of the MLP; 0: 4 hidden_size, gated: 8/3 of it"},
               model.ffn_hidden_size, {.min = 0, .max = 1 << 24});
  keys.integer({"seq_len", "the number of tokens of a training sequence"}, model.seq_len, {.min = 1, .max = 1 << 26});
}

void visit_position(KeyVisitor& keys, model::ModelConfig& model) {
  using model::Position;
  keys.choice({"position", "how tokens know their place"}, model.position,
              {{"rope", Position::rope}, {"learned", Position::learned}, {"none", Position::none}});
  keys.real({"rope_theta", "the base of RoPE's wavelengths"}, model.rope_theta, kPositive);
  keys.real({"rope_fraction", "the share of head_dim that rotates"}, model.rope_fraction,
            {.min = 0, .max = 1, .excludes_min = true});
}

void visit_router(KeyVisitor& keys, model::MoeConfig& moe) {
  using tensor::RouterScore;
  keys.choice({"router", "what makes scores of a router's logits"}, moe.router,
              {{"softmax", RouterScore::softmax}, {"sigmoid", RouterScore::sigmoid}});
  keys.boolean({"normalize_top_k", "whether the weights of a token's experts add up to routed_scaling"},
               moe.normalize_top_k);
  keys.real({"routed_scaling", "what the weights of experts are multiplied by"}, moe.routed_scaling, kPositive);
  keys.integer({"num_groups", "the number of groups of neighbouring experts"}, moe.num_groups,
               {.min = 1, .max = 1 << 16});
  keys.integer({"top_k_groups", "how many groups a token takes its experts from"}, moe.top_k_groups,
               {.min = 1, .max = 1 << 16});
}

void visit_keys(KeyVisitor& keys, model::MoeConfig& moe) {
  using model::Balance;
  keys.integer({"num_experts", "the number of experts of a layer; 0: there are none"}, moe.num_experts,
               {.min = 0, .max = 1 << 16});
  keys.integer({"top_k", "the number of experts that a token takes"}, moe.top_k, {.min = 1, .max = 1 << 10});
  keys.integer({"ffn_hidden_size", "the inner width of an expert; 0: that of the MLP"}, moe.ffn_hidden_size,
               {.min = 0, .max = 1 << 24});
  keys.integer({"shared_ffn_hidden_size", "the inner width of the expert that every token takes; 0: there is none"},
               moe.shared_ffn_hidden_size, {.min = 0, .max = 1 << 24});
  visit_router(keys, moe);
  keys.choice({"balance", "how tokens are kept from crowding at few experts"}, moe.balance,
              {{"aux", Balance::aux}, {"bias", Balance::bias}, {"none", Balance::none}});
  keys.real({"aux_loss_coef", "the weight of the loss of balance = \"aux\""}, moe.aux_loss_coef, kNotNegative);
  keys.real({"z_loss_coef", "the weight of the loss of large router logits"}, moe.z_loss_coef, kNotNegative);
  keys.real({"bias_update_rate", "the step of the biases of balance = \"bias\""}, moe.bias_update_rate, kNotNegative);
  keys.real({"capacity_factor", "how many times its even share of a sequence an expert takes; 0: all it is given"},
            moe.capacity_factor, kNotNegative);
  keys.text({"layers", "which layers have experts: \"all\", \"every:N\" (each Nth), \"after:N\" (all but N)"},
            moe.layers);
}

void visit_keys(KeyVisitor& keys, model::ModelConfig& model) {
  using tensor::Activation, tensor::NormKind;
  keys.preset({"preset", "a published shape that the other keys of [model] change"}, model);
  visit_shape(keys, model);
  keys.choice({"norm", "the kind of normalisation"}, model.norm,
              {{"rms_norm", NormKind::rms_norm}, {"layer_norm", NormKind::layer_norm}});
  keys.real({"norm_eps", "what is added to the variance"}, model.norm_eps, kPositive);
  keys.choice({"activation", "the non-linearity of the MLP"}, model.activation,
              {{"swiglu", Activation::swiglu},
               {"gelu_tanh", Activation::gelu_tanh},
               {"gelu_erf", Activation::gelu_erf},
               {"geglu", Activation::geglu},
               {"relu_squared", Activation::relu_squared}});
  visit_position(keys, model);
  keys.boolean({"qk_norm", "RMSNorm over each head of q and k"}, model.qk_norm);
  keys.boolean({"bias", "biases in linears and LayerNorm"}, model.bias);
  keys.boolean({"tie_embeddings", "one matrix as token embedding and as head"}, model.tie_embeddings);
  keys.real({"dropout", "the share dropped from the embedding and each residual branch"}, model.dropout, kBelowOne);
  keys.integer({"sliding_window", "how many last tokens a query sees, itself included; 0: all"}, model.sliding_window,
               {.min = 0, .max = kMaxId});
  keys.real({"init_std", "the standard deviation of initial matrices"}, model.init_std, kNotNegative);
  keys.begin_table("rope_scaling");
  visit_keys(keys, model.rope_scaling);
  keys.end_table();
  keys.begin_table("moe");
  visit_keys(keys, model.moe);
  keys.end_table();
}

void visit_pipeline(KeyVisitor& keys, parallel::ParallelConfig& parallel) {
  keys.text({"schedule", "the order of pipeline passes: a schedule's name, or \"file:PATH\""}, parallel.schedule);
  keys.integer({"virtual_stages", "the number of stages per pipeline rank; \"auto\": what the schedule is run with"},
               parallel.virtual_stages, {.min = 1, .max = 1 << 10, .word_for_zero = "auto"});
  keys.integer(
      {"microbatch_group", "the number of micro-batches per visit of a stage (interleaved); \"auto\": the least"},
      parallel.microbatch_group, {.min = 1, .max = 1 << 24, .word_for_zero = "auto"});
  keys.integers({"stages", "the number of layers of each pipeline stage; empty: shared out by cost"}, parallel.stages,
                {.min = 0, .max = 10'000});
}

void visit_keys(KeyVisitor& keys, parallel::ParallelConfig& parallel) {
  const IntegerRange degree = {.min = 1, .max = 1 << 20};
  keys.integer({"tp", "the number of tensor-parallel ranks"}, parallel.tp, degree);
  keys.integer({"sp", "the number of sequence-parallel ranks"}, parallel.sp, degree);
  keys.choice({"sp_method", "how attention sees tokens of other sequence-parallel ranks"}, parallel.sp_method,
              {{"ring", parallel::SpMethod::ring},
               {"ulysses", parallel::SpMethod::ulysses},
               {"all_gather", parallel::SpMethod::all_gather}});
  keys.integer({"pp", "the number of pipeline stages"}, parallel.pp, degree);
  keys.integer({"dp", "the number of data-parallel ranks; \"auto\": as many as there are"}, parallel.dp,
               {.min = 1, .max = 1 << 20, .word_for_zero = "auto"});
  keys.integer({"dp_out", "the outer part of dp"}, parallel.dp_out, degree);
  keys.integer({"ep", "the number of expert-parallel ranks"}, parallel.ep, degree);
  keys.integer({"expert_tp", "the number of tensor-parallel ranks inside an expert"}, parallel.expert_tp, degree);
  keys.integer({"zero_stage", "what is split over dp: 1 optimizer state, 2 and gradients, 3 and parameters"},
               parallel.zero_stage, {.min = 0, .max = 3});
  keys.choice({"zero_reshard", "when zero_stage = 3 gives back gathered parameters"}, parallel.zero_reshard,
              {{"forward", parallel::Reshard::forward},
               {"never", parallel::Reshard::never},
               {"stage", parallel::Reshard::stage}});
  keys.choice({"reduce_every", "when zero_stage 0 and 1 sum gradients over dp; 2 and 3 do it every micro_batch"},
              parallel.reduce_every,
              {{"step", parallel::ReduceEvery::step}, {"micro_batch", parallel::ReduceEvery::micro_batch}});
  keys.real({"bucket_mb", "the most that one reduction of gradients moves, in 2^20 bytes; 0: a block at once"},
            parallel.bucket_mb, {.min = 0, .max = 1e6});
  keys.boolean({"tp_sequence", "whether tp ranks share the tokens between matrix products"}, parallel.tp_sequence);
  visit_pipeline(keys, parallel);
}

void visit_keys(KeyVisitor& keys, TrainConfig& train) {
  using model::Recompute;
  keys.integer({"steps", "the number of optimizer steps of the whole run"}, train.steps,
               {.min = 1, .max = 1'000'000'000'000});
  keys.integer({"global_batch_size", "the number of sequences per optimizer step, over all ranks"},
               train.global_batch_size, {.min = 1, .max = 1 << 24});
  keys.integer({"micro_batch_size", "the number of sequences per forward pass of a rank; 0: all it has"},
               train.micro_batch_size, {.min = 0, .max = 1 << 24});
  keys.real({"max_grad_norm", "the global L2 norm to which gradients are scaled down; 0: no clipping"},
            train.max_grad_norm, kNotNegative);
  keys.choice({"recompute", "what is recomputed in the backward pass to save memory"}, train.recompute,
              {{"none", Recompute::none}, {"selective", Recompute::selective}, {"full", Recompute::full}});
  keys.integer({"eval_every", "the number of steps between evaluations; 0: never"}, train.eval_every, {.min = 0});
  keys.integer({"eval_steps", "the number of batches per evaluation"}, train.eval_steps,
               {.min = 1, .max = 1'000'000'000});
}

void visit_keys(KeyVisitor& keys, PrecisionConfig& precision) {
  using tensor::Dtype;
  keys.choice({"compute", "the type of activations and gradients of activations"}, precision.compute,
              {{"fp32", Dtype::fp32}, {"bf16", Dtype::bf16}, {"fp64", Dtype::fp64}});
}

void visit_keys(KeyVisitor& keys, OptimizerConfig& optimizer) {
  keys.choice({"name", "the kind of optimizer"}, optimizer.name, {{"adamw", OptimizerName::adamw}});
  keys.real({"lr", "the peak learning rate"}, optimizer.lr, {.min = 0, .max = 1e6, .excludes_min = true});
  keys.real({"beta1", "the decay of the mean of gradients"}, optimizer.beta1, kBelowOne);
  keys.real({"beta2", "the decay of the mean of squared gradients"}, optimizer.beta2, kBelowOne);
  keys.real({"eps", "what is added to the root of the second moment"}, optimizer.eps, kPositive);
  keys.real({"weight_decay", "the decoupled decay of matrices"}, optimizer.weight_decay, {.min = 0, .max = 1e6});
}

void visit_keys(KeyVisitor& keys, LrScheduleConfig& schedule) {
  using Kind = LrScheduleKind;
  keys.choice({"kind", "the shape of the learning rate over the steps"}, schedule.kind,
              {{"constant", Kind::constant}, {"linear", Kind::linear}, {"cosine", Kind::cosine}, {"wsd", Kind::wsd}});
  keys.integer({"warmup_steps", "the number of steps from 0 up to optimizer.lr"}, schedule.warmup_steps, {.min = 0});
  keys.integer({"decay_steps", "the number of steps down to min_lr; 0: all after warmup (wsd: a tenth)"},
               schedule.decay_steps, {.min = 0});
  keys.real({"min_lr", "the learning rate where the decay ends"}, schedule.min_lr, kNotNegative);
}

void visit_keys(KeyVisitor& keys, data::DataConfig& data) {
  using data::FileAccess;
  keys.sources({"train", "the list of token files to train on"}, data.train);
  keys.paths({"valid", "the list of token files of the fixed evaluation set"}, data.valid);
  keys.real({"valid_fraction", "the share of each train file's end kept for evaluation"}, data.valid_fraction,
            kBelowOne);
  keys.boolean({"document_mask", "attention inside a document only"}, data.document_mask);
  keys.integer({"eod_id", "the token that ends a document, for files that list none; -1: there is none"}, data.eod_id,
               {.min = -1, .max = kMaxId});
  keys.text({"tokenizer", "\"bytes\" or the path of a tokenizer.json; sample and inspect use it"}, data.tokenizer);
  keys.integer({"prefetch_batches", "the number of batches prepared ahead"}, data.prefetch_batches,
               {.min = 1, .max = 1024});
  keys.choice({"access", "how bytes of files reach memory"}, data.access,
              {{"mmap", FileAccess::mmap}, {"pread", FileAccess::pread}});
}

void visit_keys(KeyVisitor& keys, checkpoint::CheckpointConfig& checkpoint) {
  keys.text({"dir", "the folder of checkpoints; empty: checkpoints inside run.dir"}, checkpoint.dir);
  keys.integer({"every_steps", "the number of steps between saves; 0: only at the end"}, checkpoint.every_steps,
               {.min = 0});
  keys.real({"every_minutes", "the time after which a save is due in any case; 0: never"}, checkpoint.every_minutes,
            {.min = 0, .max = 1e6});
  keys.integer({"keep_last", "how many checkpoints are kept; 0: all"}, checkpoint.keep_last, {.min = 0});
  keys.integer({"keep_every", "the number of steps between checkpoints that are kept for good; 0: none"},
               checkpoint.keep_every, {.min = 0});
  keys.boolean({"async", "whether checkpoints are written while training goes on"}, checkpoint.async);
  keys.real({"staging_mb", "the most memory of a rank, in 2^20 bytes, for copies of what is not written yet (async)"},
            checkpoint.staging_mb, {.min = 0, .max = 1e9});
  keys.integer({"max_failed_saves", "how many saves may fail one after another before the run ends"},
               checkpoint.max_failed_saves, {.min = 0});
  keys.text({"resume", "where to start: \"auto\" (newest in dir), \"none\" (anew), or a checkpoint's path"},
            checkpoint.resume);
}

void visit_keys(KeyVisitor& keys, LogConfig& log) {
  keys.integer({"every_steps", "the number of steps between printed lines"}, log.every_steps, {.min = 1});
  keys.boolean({"trace", "whether every pass and message is timed, into trace/trace.json"}, log.trace);
}

void visit_keys(KeyVisitor& keys, ClusterConfig& cluster) {
  keys.real({"peak_tflops", "the TFLOP/s of one device that count as an MFU of 1; 0: known from the device"},
            cluster.peak_tflops, {.min = 0, .max = 1e9});
}

template <class Table>
void visit_table(KeyVisitor& keys, const char* name, Table& table) {
  keys.begin_table(name);
  visit_keys(keys, table);
  keys.end_table();
}

}  // namespace

void visit_keys(KeyVisitor& keys, Config& config) {
  visit_table(keys, "run", config.run);
  visit_table(keys, "model", config.model);
  visit_table(keys, "parallel", config.parallel);
  visit_table(keys, "train", config.train);
  visit_table(keys, "precision", config.precision);
  visit_table(keys, "optimizer", config.optimizer);
  visit_table(keys, "lr_schedule", config.lr_schedule);
  visit_table(keys, "data", config.data);
  visit_table(keys, "checkpoint", config.checkpoint);
  visit_table(keys, "log", config.log);
  visit_table(keys, "cluster", config.cluster);
}

}  // namespace trainer
