#pragma once
/// Communicators that write down when each call began and when it was over, for whoever asks where time goes.

#include "parallel/communicator_factory.h"
#include "parallel/event_log.h"

namespace parallel {

/// Makes what another factory makes, with every call in the log: from the call to the end of its wait. Groups of one do
/// nothing and stay as they are. Both are borrowed.
class TracingCommunicatorFactory final : public CommunicatorFactory {
 public:
  TracingCommunicatorFactory(CommunicatorFactory& factory, EventLog& log) : factory_(factory), log_(log) {}

  std::unique_ptr<Communicator> make(std::string axis, const std::vector<int>& ranks) override;

 private:
  CommunicatorFactory& factory_;
  EventLog& log_;
};

}  // namespace parallel
