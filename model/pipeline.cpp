#include "model/pipeline.h"

#include <deque>
#include <map>

namespace model {

using parallel::Action;
using parallel::ActionKind;
using parallel::Communicator;
using parallel::EventClock;
using parallel::Handle;
using parallel::Schedule;
using tensor::MemoryCategory;
using tensor::Ops;
using tensor::Tensor;

Pipeline::Pipeline(const ModelConfig& config, const PipelineOptions& options, const parallel::LayerGroups& groups,
                   Communicator& pp, parallel::ParameterStore& store)
    : config_(config),
      options_(options),
      groups_(groups),
      pp_(pp),
      store_(store),
      statistics_(std::make_unique<RoutingStatistics>(config)) {
  options_.stage.statistics = statistics_.get();
  CHECK(options.spans.size() == options.rank_of_stage.size(), "{} spans for {} stages", options.spans.size(),
        options.rank_of_stage.size());
  for (size_t i = 0; i < options.spans.size(); ++i) {
    stages_.emplace_back();
    if (options.rank_of_stage[i] != pp.rank()) continue;
    stages_.back() = std::make_unique<Stage>(config, options.spans[i], options_.stage, groups, store);
  }
}

void Pipeline::prepare(tensor::Device& device, tensor::Dtype dtype) {
  dtype_ = dtype;
  for (const auto& stage : stages_) {
    if (stage) stage->prepare(device, dtype);
  }
}

std::vector<const Stage*> Pipeline::stages() const {
  std::vector<const Stage*> here;
  for (const auto& stage : stages_) {
    if (stage) here.push_back(stage.get());
  }
  return here;
}

// ---- the executor ---------------------------------------------------------------------------------------------------

/// One walk over the actions of this rank. What is between two passes lies in maps by (stage, micro-batch).
class Pipeline::Walk {
 public:
  enum class Mode { train, evaluate };

  Walk(Pipeline& pipeline, Ops& ops, const Schedule& schedule, const StepBatches& batches, Mode mode)
      : pipeline_(pipeline), ops_(ops), schedule_(schedule), batches_(batches), mode_(mode) {}

  void run() {
    const EventClock::time_point begin = EventClock::now();
    last_end_ = begin;
    const std::vector<Action>& actions = schedule_.ranks[static_cast<size_t>(pipeline_.pp_.rank())];
    for (size_t i = 0; i < actions.size(); ++i) {
      const bool reduces = i + 1 < actions.size() && actions[i + 1].kind == ActionKind::reduce_grad &&
                           actions[i + 1].stage == actions[i].stage;
      take(actions[i], reduces ? Reduce::now : Reduce::later);
    }
    sending_.clear();
    times_.span = std::chrono::duration<double>(last_end_ - begin).count();
  }

  double loss() const { return loss_; }
  int peak_live() const { return peak_live_; }
  const WalkTimes& times() const { return times_; }

 private:
  using Key = std::pair<int, int>;  // stage, micro-batch
  struct InFlight {
    MicroBatch batch;
    Stage::Saved saved;
  };
  /// A tensor on its way: the call ends before the tensor does.
  struct Message {
    Tensor x;
    Handle call;
  };
  /// Hidden states go up the stages, their gradients down.
  struct Direction {
    int next;  // +1, -1
    std::map<Key, Message> arriving;
    std::map<Key, Tensor> leaving;
  };

  void take(const Action& action, Reduce reduce);
  void forward(const Action& action);
  void backward(const Action& action, Reduce reduce);
  void backward_input(const Action& action);
  void backward_weight(const Action& action, Reduce reduce);

  Tensor arrived(Direction& way, const Action& action);
  void hand_on(Direction& way, const Action& action, Tensor x);
  void send(Direction& way, const Action& action);
  void receive(Direction& way, const Action& action);
  void finish_gradients() {
    if (!std::exchange(is_finished_, true)) pipeline_.store_.finish_gradients();
  }

  /// Runs a pass and writes down when.
  template <class Pass>
  auto timed(const Action& action, const Pass& pass);

  static Key key_of(const Action& action) { return {action.stage, action.microbatch}; }
  MicroBatch load(const Action& action) const;
  const Stage& stage_of(const Action& action) const { return pipeline_.at(action.stage); }

  Pipeline& pipeline_;
  Ops& ops_;
  const Schedule& schedule_;
  const StepBatches& batches_;
  Mode mode_;

  std::map<Key, InFlight> in_flight_;  // from forward to the last backward
  std::map<int, std::vector<parallel::ParameterStore::Use>> held_;
  Direction up_{.next = 1, .arriving = {}, .leaving = {}};
  Direction down_{.next = -1, .arriving = {}, .leaving = {}};
  std::deque<Message> sending_;  // oldest first
  double loss_ = 0;
  int peak_live_ = 0;
  bool is_finished_ = false;
  WalkTimes times_;
  EventClock::time_point last_end_;
};

void Pipeline::Walk::take(const Action& action, Reduce reduce) {
  switch (action.kind) {
    case ActionKind::forward:
      return forward(action);
    case ActionKind::backward:
      return backward(action, reduce);
    case ActionKind::backward_input:
      return backward_input(action);
    case ActionKind::backward_weight:
      return backward_weight(action, reduce);
    case ActionKind::send_forward:
      return send(up_, action);
    case ActionKind::receive_forward:
      return receive(up_, action);
    case ActionKind::send_backward:
      return send(down_, action);
    case ActionKind::receive_backward:
      return receive(down_, action);
    case ActionKind::unshard:
      held_[action.stage] = stage_of(action).hold();
      return;
    case ActionKind::reshard:
      held_.erase(action.stage);
      return;
    case ActionKind::reduce_grad:
      return;  // begun by the pass before it, block by block
    case ActionKind::reduce_tied:
      finish_gradients();
      return pipeline_.store_.sum_over(*pipeline_.options_.stage.tied);
    case ActionKind::step:
      return finish_gradients();
  }
}

template <class Pass>
auto Pipeline::Walk::timed(const Action& action, const Pass& pass) {
  const EventClock::time_point begin = EventClock::now();
  auto result = pass();
  last_end_ = EventClock::now();
  times_.busy += std::chrono::duration<double>(last_end_ - begin).count();
  if (parallel::EventLog* log = pipeline_.options_.log) {
    log->add({.kind = parallel::Event::Kind::pass,
              .name = to_text(action),
              .category = to_string(action.kind),
              .begin = begin,
              .end = last_end_});
  }
  return result;
}

// ---- passes

MicroBatch Pipeline::Walk::load(const Action& action) const {
  const HostBatch& host = batches_.micro_batches[static_cast<size_t>(action.microbatch)];
  MicroBatch batch =
      to_device(host, pipeline_.config_.sliding_window, pipeline_.groups_.sequence.part(), ops_.device());
  batch.step = batches_.step;
  batch.grad_scale = batches_.grad_scale;
  batch.step_sequences = batches_.step_sequences;
  return batch;
}

void Pipeline::Walk::forward(const Action& action) {
  Tensor x = arrived(up_, action);
  const Stage& stage = stage_of(action);
  if (mode_ == Mode::evaluate) {
    Stage::Evaluated y = timed(action, [&] { return stage.evaluate(ops_, load(action), std::move(x)); });
    loss_ += y.loss;
    return hand_on(up_, action, std::move(y.hidden));
  }
  InFlight& flight = in_flight_[key_of(action)];
  peak_live_ = std::max(peak_live_, static_cast<int>(in_flight_.size()));
  flight.batch = load(action);
  Tensor y = timed(action, [&] { return stage.forward(ops_, flight.batch, std::move(x), flight.saved); });
  loss_ += flight.saved.loss;
  hand_on(up_, action, std::move(y));
}

void Pipeline::Walk::backward(const Action& action, Reduce reduce) {
  Tensor dy = arrived(down_, action);
  InFlight& flight = in_flight_.at(key_of(action));
  Tensor dx =
      timed(action, [&] { return stage_of(action).backward(ops_, flight.batch, std::move(dy), flight.saved, reduce); });
  in_flight_.erase(key_of(action));
  hand_on(down_, action, std::move(dx));
}

void Pipeline::Walk::backward_input(const Action& action) {
  Tensor dy = arrived(down_, action);
  InFlight& flight = in_flight_.at(key_of(action));
  Tensor dx =
      timed(action, [&] { return stage_of(action).backward_input(ops_, flight.batch, std::move(dy), flight.saved); });
  hand_on(down_, action, std::move(dx));
}

void Pipeline::Walk::backward_weight(const Action& action, Reduce reduce) {
  InFlight& flight = in_flight_.at(key_of(action));
  timed(action, [&] {
    stage_of(action).backward_weight(ops_, flight.batch, flight.saved, reduce);
    return 0;
  });
  in_flight_.erase(key_of(action));
}

// ---- what goes from stage to stage

/// What the neighbour handed on: absent on the first stage of a way.
Tensor Pipeline::Walk::arrived(Direction& way, const Action& action) {
  if (!pipeline_.exists(action.stage - way.next)) return {};
  auto message = way.arriving.extract(key_of(action));
  CHECK(!message.empty(), "{} has its input", to_text(action));
  message.mapped().call.wait();
  return std::move(message.mapped().x);
}

void Pipeline::Walk::hand_on(Direction& way, const Action& action, Tensor x) {
  const int next = action.stage + way.next;
  if (!pipeline_.exists(next)) return;
  if (pipeline_.is_here(next)) {
    way.arriving[{next, action.microbatch}].x = std::move(x);
  } else {
    way.leaving[key_of(action)] = std::move(x);
  }
}

// Any wait for an earlier message is safe: all ranks take their messages in one order (add_messages).
void Pipeline::Walk::send(Direction& way, const Action& action) {
  constexpr size_t kMostInFlight = 4;  // their tensors live until they are taken
  if (sending_.size() == kMostInFlight) sending_.pop_front();
  auto leaving = way.leaving.extract(key_of(action));
  CHECK(!leaving.empty(), "{} has something to send", to_text(action));
  Message& message = sending_.emplace_back();
  message.x = std::move(leaving.mapped());
  message.call = pipeline_.pp_.send(message.x, pipeline_.rank_of(action.stage + way.next));
}

void Pipeline::Walk::receive(Direction& way, const Action& action) {
  const parallel::TensorParallel& tp = pipeline_.groups_.tensor;
  const int64_t of_tp = tp.tokens == parallel::TokenSharding::sharded ? tp.tp.size() : 1;
  const int64_t parts = pipeline_.groups_.sequence.part().size * of_tp;
  const HostBatch& host = batches_.micro_batches[static_cast<size_t>(action.microbatch)];
  const int64_t num_tokens = std::ssize(host.tokens);
  Message& message = way.arriving[key_of(action)];
  message.x = ops_.device().allocate({num_tokens / parts, pipeline_.config_.hidden_size}, pipeline_.dtype_,
                                     MemoryCategory::activations);
  message.call = pipeline_.pp_.receive(message.x, pipeline_.rank_of(action.stage - way.next));
}

double Pipeline::train(Ops& ops, const Schedule& schedule, int peak_live, const StepBatches& batches) {
  store_.begin_step();
  statistics_->clear();
  Walk walk(*this, ops, schedule, batches, Walk::Mode::train);
  walk.run();
  CHECK(walk.peak_live() == peak_live, "{} micro-batches were kept at once, {} predicted", walk.peak_live(), peak_live);
  times_ = walk.times();
  return walk.loss();
}

RoutingStatistics Pipeline::routing_statistics() const {
  RoutingStatistics statistics = *statistics_;
  for (const Stage* stage : stages()) stage->add_router_biases(statistics);
  return statistics;
}

double Pipeline::evaluate(Ops& ops, const Schedule& schedule, const StepBatches& batches) {
  Walk walk(*this, ops, schedule, batches, Walk::Mode::evaluate);
  walk.run();
  return walk.loss();
}

// ---- decoding: stage after stage ------------------------------------------------------------------------------------

void Pipeline::Cache::restart() {
  for (KvCache& stage : of_stages) {
    stage.length = 0;
    for (LayerCache& layer : stage.layers) layer.length = 0;
  }
}

Pipeline::Cache Pipeline::make_cache(int64_t capacity, tensor::Dtype dtype, tensor::Device& device) const {
  Cache cache;
  for (const Stage* stage : stages()) cache.of_stages.push_back(stage->make_cache(capacity, dtype, device));
  return cache;
}

Tensor Pipeline::decode(Ops& ops, const MicroBatch& batch, Cache& cache) const {
  auto stage_cache = cache.of_stages.begin();
  Tensor hidden;
  for (int stage = 0; exists(stage); ++stage) {
    if (!is_here(stage)) continue;
    if (is_elsewhere(stage - 1)) {
      hidden = ops.device().allocate({batch.num_tokens(), config_.hidden_size}, dtype_, MemoryCategory::activations);
      pp_.receive(hidden, rank_of(stage - 1)).wait();
    }
    hidden = at(stage).decode(ops, batch, std::move(hidden), *stage_cache++);
    if (is_elsewhere(stage + 1)) pp_.send(hidden, rank_of(stage + 1)).wait();
  }
  const int last = static_cast<int>(std::ssize(stages_)) - 1;
  if (!is_here(last)) {
    hidden = ops.device().allocate({1, config_.vocab_size}, accumulator_of(dtype_), MemoryCategory::workspace);
  }
  pp_.broadcast(hidden, rank_of(last)).wait();
  return hidden;
}

}  // namespace model
