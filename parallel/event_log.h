#pragma once
/// What a rank did and when: passes of a schedule, calls of communicators. Written down only where a run asks for it.

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace parallel {

using EventClock = std::chrono::steady_clock;

struct Event {
  enum class Kind { pass, communication };

  Kind kind = Kind::pass;
  std::string name;      ///< "0F1", "all_gather"
  std::string category;  ///< "forward"; of communication, the group: "zero"
  EventClock::time_point begin, end;
};

class EventLog {
 public:
  void add(Event event) { events_.push_back(std::move(event)); }
  std::vector<Event> take() { return std::exchange(events_, {}); }

 private:
  std::vector<Event> events_;
};

}  // namespace parallel
