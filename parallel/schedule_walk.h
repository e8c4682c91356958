#pragma once
/// What actions need and make: what everything that walks a schedule asks. Internal to schedule*.cpp.

#include "parallel/schedule.h"

namespace parallel {

constexpr bool is_pass(ActionKind kind) { return kind <= ActionKind::backward_weight; }
constexpr bool is_message(ActionKind kind) {
  return kind >= ActionKind::send_forward && kind <= ActionKind::receive_backward;
}
constexpr bool is_send(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}
/// Of messages: whether they carry gradients.
constexpr bool is_backward_message(ActionKind kind) {
  return kind == ActionKind::send_backward || kind == ActionKind::receive_backward;
}
/// The pass after which a micro-batch of a stage has left nothing behind.
constexpr bool completes_weights(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::backward_weight;
}
constexpr bool makes_input_grad(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::backward_input;
}

/// The stage at the other end of a message; -1 or num_stages() where there is none.
constexpr int partner_stage(const Action& message) {
  const bool goes_up = message.kind == ActionKind::send_forward || message.kind == ActionKind::receive_backward;
  return goes_up ? message.stage + 1 : message.stage - 1;
}
constexpr int receiver_stage(const Action& message) {
  return is_send(message.kind) ? partner_stage(message) : message.stage;
}

/// The actions from `index` on that happen together: two of a pair, else one.
inline size_t block_length(const std::vector<Action>& list, size_t index) {
  return list[index].overlaps_next && index + 1 < list.size() ? 2 : 1;
}

/// Whether there is any backward. A schedule without is of an evaluation.
inline bool has_backward(const Schedule& schedule) {
  for (const std::vector<Action>& list : schedule.ranks) {
    for (const Action& action : list) {
      if (is_pass(action.kind) && action.kind != ActionKind::forward) return true;
    }
  }
  return false;
}

/// What passes make, of one stage and micro-batch. B makes both gradients.
enum class Product { output, input_grad, weight_grads };
constexpr size_t kNumProducts = 3;

/// Calls visit(product, stage) for what a pass needs of its own micro-batch.
template <typename Visit>
void for_each_input(int num_stages, const Action& pass, Visit visit) {
  if (pass.kind == ActionKind::forward) {
    if (pass.stage > 0) visit(Product::output, pass.stage - 1);
    return;
  }
  if (pass.kind == ActionKind::backward_weight) return visit(Product::input_grad, pass.stage);
  visit(Product::output, pass.stage);
  if (pass.stage + 1 < num_stages) visit(Product::input_grad, pass.stage + 1);
}

/// Calls visit(product) for what a pass makes.
template <typename Visit>
void for_each_output(const Action& pass, Visit visit) {
  if (pass.kind == ActionKind::forward) visit(Product::output);
  if (makes_input_grad(pass.kind)) visit(Product::input_grad);
  if (completes_weights(pass.kind)) visit(Product::weight_grads);
}

/// A T for every product of a schedule.
template <typename T>
class ProductTable {
 public:
  ProductTable(const Schedule& schedule, const T& initial)
      : num_microbatches_(static_cast<size_t>(schedule.num_microbatches)),
        values_(kNumProducts * schedule.rank_of_stage.size() * num_microbatches_, initial) {}

  T& at(Product product, int stage, int microbatch) {
    const size_t chunk = static_cast<size_t>(stage) * num_microbatches_ + static_cast<size_t>(microbatch);
    return values_[chunk * kNumProducts + static_cast<size_t>(product)];
  }

 private:
  size_t num_microbatches_;
  std::vector<T> values_;
};

}  // namespace parallel
