#pragma once
/// The messages of a simulated schedule, in queues. Internal to the simulator.

#include <array>

#include "parallel/schedule_simulator.h"
#include "parallel/schedule_walk.h"

namespace parallel {

/// A time, and the action that it came from.
struct Moment {
  double time = std::numeric_limits<double>::infinity();  ///< infinity: not yet
  ActionPlace cause = {};

  bool has_come() const { return time < std::numeric_limits<double>::infinity(); }
};

class MessageQueues {
 public:
  MessageQueues(const Schedule& schedule, const SimulationOptions& options);

  /// A rank has come to a send or receive, which is `now.cause`.
  void post(const Action& message, const Moment& now);
  bool is_posted(const Action& message) const { return message_of(message).posted[side(message)].has_come(); }
  /// The end of a message, when both ranks have come to it.
  const Moment& arrival(const Action& message) const { return message_of(message).arrival; }
  /// Actions whose message the other rank never came to, or not in this order.
  std::vector<ActionPlace> waiting() const;

 private:
  struct Message {
    std::array<Moment, 2> posted;      // by side: 0 sends, 1 receives
    std::array<size_t, 2> queue = {};  // by side
    Moment arrival;
  };
  struct Queue {
    std::vector<size_t> messages;
    size_t head = 0;
    Moment free = {.time = 0};

    bool is_empty() const { return head == messages.size(); }
  };

  static size_t side(const Action& message) { return is_send(message.kind) ? 0 : 1; }
  size_t number_of(const Action& message) const;
  const Message& message_of(const Action& message) const { return messages_[number_of(message)]; }
  size_t queue_of(const Action& message, int rank) const;
  void settle(size_t queue);
  bool is_first_on_both_sides(size_t number) const;
  void finish(Message& message);

  const Schedule& schedule_;
  Transport transport_;
  double link_time_;
  std::vector<Message> messages_;
  std::vector<Queue> queues_;
};

}  // namespace parallel
