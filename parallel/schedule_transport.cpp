#include "parallel/schedule_transport.h"

#include "tensor/error.h"

namespace parallel {

MessageQueues::MessageQueues(const Schedule& schedule, const SimulationOptions& options)
    : schedule_(schedule), transport_(options.transport), link_time_(options.link_time) {
  if (transport_ == Transport::ideal) return;
  const size_t num_ranks = schedule.ranks.size();
  messages_.resize(2 * schedule.rank_of_stage.size() * static_cast<size_t>(schedule.num_microbatches));
  queues_.resize(2 * num_ranks * num_ranks);
}

size_t MessageQueues::number_of(const Action& message) const {
  const int num_stages = schedule_.num_stages();
  const int receiver = receiver_stage(message);
  CHECK(receiver >= 0 && receiver < num_stages, "stage {} receives, of {}", receiver, num_stages);
  const int row = receiver + (is_backward_message(message.kind) ? num_stages : 0);
  return static_cast<size_t>(row) * static_cast<size_t>(schedule_.num_microbatches) +
         static_cast<size_t>(message.microbatch);
}

/// Every rank has two queues for each peer, of which a transport uses all or a part.
size_t MessageQueues::queue_of(const Action& message, int rank) const {
  const size_t first = 2 * static_cast<size_t>(rank) * schedule_.ranks.size();
  const int partner = partner_stage(message);
  CHECK(partner >= 0 && partner < schedule_.num_stages(), "a message of stage {} with stage {}", message.stage,
        partner);
  const size_t peer = static_cast<size_t>(schedule_.rank_of_stage[static_cast<size_t>(partner)]);
  switch (transport_) {
    case Transport::queue_per_peer:
      return first + 2 * peer;
    case Transport::queue_per_direction:
      return first + 2 * peer + (is_send(message.kind) ? 0 : 1);
    case Transport::queue_per_class:
      return first + 2 * peer + (is_backward_message(message.kind) ? 1 : 0);
    case Transport::ideal:
    case Transport::blocking:
    case Transport::queue_per_rank:
      break;
  }
  return first;
}

void MessageQueues::post(const Action& message, const Moment& now) {
  const size_t number = number_of(message);
  const size_t queue = queue_of(message, now.cause.rank);
  messages_[number].posted[side(message)] = now;
  messages_[number].queue[side(message)] = queue;
  queues_[queue].messages.push_back(number);
  settle(queue);
}

bool MessageQueues::is_first_on_both_sides(size_t number) const {
  const Message& message = messages_[number];
  if (message.arrival.has_come()) return false;  // posted twice
  for (size_t s = 0; s < message.posted.size(); ++s) {
    if (!message.posted[s].has_come()) return false;
    const Queue& queue = queues_[message.queue[s]];
    if (queue.is_empty() || queue.messages[queue.head] != number) return false;
  }
  return true;
}

void MessageQueues::finish(Message& message) {
  Moment start = message.posted[0];
  const auto not_before = [&](const Moment& moment) {
    if (moment.time > start.time) start = moment;
  };
  not_before(message.posted[1]);
  for (const size_t queue : message.queue) not_before(queues_[queue].free);
  message.arrival = {start.time + link_time_, start.cause};
  for (const size_t queue : message.queue) {
    queues_[queue].free = message.arrival;
    ++queues_[queue].head;
  }
}

/// Finishes what can be, now that the first message of a queue has changed.
void MessageQueues::settle(size_t queue) {
  std::vector<size_t> changed = {queue};
  while (!changed.empty()) {
    const Queue& next = queues_[changed.back()];
    changed.pop_back();
    if (next.is_empty()) continue;
    const size_t number = next.messages[next.head];
    if (!is_first_on_both_sides(number)) continue;
    finish(messages_[number]);
    changed.insert(changed.end(), messages_[number].queue.begin(), messages_[number].queue.end());
  }
}

std::vector<ActionPlace> MessageQueues::waiting() const {
  std::vector<ActionPlace> places;
  for (const Message& message : messages_) {
    if (message.arrival.has_come()) continue;
    for (const Moment& posted : message.posted) {
      if (posted.has_come()) places.push_back(posted.cause);
    }
  }
  return places;
}

}  // namespace parallel
