#include "parallel/schedule_simulator.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "parallel/schedule_transport.h"
#include "tensor/error.h"

namespace parallel {
namespace {

class Simulator {
 public:
  Simulator(const Schedule& schedule, const SimulationOptions& options)
      : schedule_(schedule),
        options_(options),
        products_(schedule, Moment{}),
        messages_(schedule, options),
        cursors_(schedule.ranks.size(), 0),
        now_(schedule.ranks.size(), Moment{.time = 0}) {}

  Simulation run() {
    prepare();
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
        while (advance(rank)) has_moved = true;
      }
    }
    finish();
    return std::move(result_);
  }

 private:
  void prepare() {
    for (const auto* times : {&options_.forward, &options_.backward_input, &options_.backward_weight}) {
      CHECK(times->empty() || times->size() == schedule_.rank_of_stage.size(), "times of {} stages, of {}",
            times->size(), schedule_.num_stages());
    }
    result_.busy.assign(schedule_.ranks.size(), 0);
    result_.peak_live = peak_live_microbatches(schedule_);
    for (const std::vector<Action>& list : schedule_.ranks) {
      result_.spans.emplace_back(list.size());
      causes_.emplace_back(list.size());
    }
  }

  /// The rank's next action or pair, if what it waits for is there.
  bool advance(int rank) {
    const size_t r = static_cast<size_t>(rank);
    const std::vector<Action>& list = schedule_.ranks[r];
    const ActionPlace place{rank, cursors_[r]};
    if (place.index == list.size()) return false;
    const Action& action = list[place.index];
    if (is_pass(action.kind)) return advance_passes(place, block_length(list, place.index));
    if (is_message(action.kind) && options_.transport != Transport::ideal) return advance_message(place, action);
    record(place, 1, now_[r], 0);
    return true;
  }

  bool advance_passes(const ActionPlace& place, size_t count) {
    const size_t rank = static_cast<size_t>(place.rank);
    Moment start = now_[rank];
    double duration = 0;
    for (size_t i = 0; i < count; ++i) {
      const Action& pass = schedule_.ranks[rank][place.index + i];
      if (!wait_for_inputs(pass, start)) return false;
      duration += duration_of(pass);
    }
    record(place, count, start, duration);
    result_.busy[rank] += duration;
    for (size_t i = 0; i < count; ++i) {
      const Action& pass = schedule_.ranks[rank][place.index + i];
      for_each_output(pass, [&](Product product) { products_.at(product, pass.stage, pass.microbatch) = now_[rank]; });
    }
    return true;
  }

  /// Moves `start` to when the last input is there; false where one is not.
  bool wait_for_inputs(const Action& pass, Moment& start) {
    bool is_ready = true;
    for_each_input(schedule_.num_stages(), pass, [&](Product product, int stage) {
      const Moment input = input_of(pass, product, stage);
      if (input.time > start.time) start = input;
      is_ready = is_ready && input.has_come();
    });
    return is_ready;
  }

  Moment input_of(const Action& pass, Product product, int stage) {
    const auto rank_of = [&](int s) { return schedule_.rank_of_stage[static_cast<size_t>(s)]; };
    Moment input = products_.at(product, stage, pass.microbatch);
    if (rank_of(stage) == rank_of(pass.stage)) return input;
    if (options_.transport == Transport::ideal) {
      input.time += options_.link_time;
      return input;
    }
    const ActionKind kind = product == Product::output ? ActionKind::receive_forward : ActionKind::receive_backward;
    return messages_.arrival({kind, pass.stage, pass.microbatch});
  }

  bool advance_message(const ActionPlace& place, const Action& message) {
    Moment& now = now_[static_cast<size_t>(place.rank)];
    if (is_send(message.kind) && !is_made(message)) return false;
    const bool is_blocking = options_.transport == Transport::blocking;
    if (!is_blocking || !messages_.is_posted(message)) messages_.post(message, {now.time, place});
    if (!is_blocking) {
      record(place, 1, now, 0);
      return true;
    }
    const Moment& arrival = messages_.arrival(message);
    if (!arrival.has_come()) return false;
    const Moment start = arrival.cause == place ? now : Moment{now.time, arrival.cause};
    record(place, 1, start, arrival.time - now.time);
    return true;
  }

  bool is_made(const Action& send) {
    const Product product = send.kind == ActionKind::send_forward ? Product::output : Product::input_grad;
    return products_.at(product, send.stage, send.microbatch).has_come();
  }

  void record(const ActionPlace& place, size_t count, const Moment& start, double duration) {
    const size_t rank = static_cast<size_t>(place.rank);
    const double end = start.time + duration;
    for (size_t i = place.index; i < place.index + count; ++i) {
      result_.spans[rank][i] = {start.time, end};
      causes_[rank][i] = start.cause;
    }
    now_[rank] = {end, place};
    cursors_[rank] += count;
  }

  double duration_of(const Action& pass) const {
    const auto of = [&](const std::vector<double>& times) {
      return times.empty() ? 1.0 : times[static_cast<size_t>(pass.stage)];
    };
    double duration = 0;
    if (pass.kind == ActionKind::forward) duration += of(options_.forward);
    if (makes_input_grad(pass.kind)) duration += of(options_.backward_input);
    if (completes_weights(pass.kind)) duration += of(options_.backward_weight);
    return duration;
  }

  void finish() {
    for (int rank = 0; rank < schedule_.num_ranks(); ++rank) {
      const size_t r = static_cast<size_t>(rank);
      if (cursors_[r] < schedule_.ranks[r].size()) result_.stuck.push_back({rank, cursors_[r]});
    }
    if (result_.stuck.empty()) result_.stuck = messages_.waiting();
    const auto last =
        std::max_element(now_.begin(), now_.end(), [](const Moment& a, const Moment& b) { return a.time < b.time; });
    if (last == now_.end()) return;
    result_.makespan = last->time;
    for (ActionPlace place = last->cause; place.rank >= 0;) {
      result_.critical_path.push_back(place);
      place = causes_[static_cast<size_t>(place.rank)][place.index];
    }
    std::reverse(result_.critical_path.begin(), result_.critical_path.end());
  }

  const Schedule& schedule_;
  const SimulationOptions& options_;
  ProductTable<Moment> products_;
  MessageQueues messages_;
  std::vector<size_t> cursors_;                   // by rank: the next action
  std::vector<Moment> now_;                       // by rank: end of its last action
  std::vector<std::vector<ActionPlace>> causes_;  // by action: the one it waited for longest
  Simulation result_;
};

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

}  // namespace

double Simulation::idle_over_ideal() const {
  const double ideal = sum(busy);
  return ideal > 0 ? (makespan * static_cast<double>(busy.size()) - ideal) / ideal : 0;
}

double Simulation::idle_over_total() const {
  const double total = makespan * static_cast<double>(busy.size());
  return total > 0 ? (total - sum(busy)) / total : 0;
}

Simulation simulate(const Schedule& schedule, const SimulationOptions& options) {
  return Simulator(schedule, options).run();
}

std::vector<int> peak_live_microbatches(const Schedule& schedule) {
  const bool keeps = has_backward(schedule);
  std::vector<int> peaks;
  for (const std::vector<Action>& list : schedule.ranks) {
    int live = 0;
    int peak = 0;
    for (const Action& action : list) {
      if (action.kind == ActionKind::forward) peak = std::max(peak, live + 1);
      if (action.kind == ActionKind::forward && keeps) ++live;
      if (completes_weights(action.kind)) --live;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::string stuck_text(const Schedule& schedule, const Simulation& simulation) {
  std::string text;
  for (const ActionPlace& place : simulation.stuck) {
    const Action& action = schedule.ranks[static_cast<size_t>(place.rank)][place.index];
    text += fmt::format("{}rank {} at {}", text.empty() ? "" : ", ", place.rank, to_text(action));
  }
  return text;
}

}  // namespace parallel
