#include "parallel/traced_communicator.h"

#include "parallel/ledger.h"

namespace parallel {
namespace {

using tensor::Tensor;

/// Writes its event when the call under it is over.
class TracedCall final : public PendingCall {
 public:
  TracedCall(Handle call, Event event, EventLog& log) : call_(std::move(call)), event_(std::move(event)), log_(log) {}

  void wait() override {
    call_.wait();
    event_.end = EventClock::now();
    log_.add(std::move(event_));
  }

 private:
  Handle call_;
  Event event_;
  EventLog& log_;
};

class TracedCommunicator final : public Communicator {
 public:
  TracedCommunicator(std::unique_ptr<Communicator> inner, EventLog& log)
      : Communicator(inner->axis(), inner->rank(), inner->size()), inner_(std::move(inner)), log_(log) {}

  Handle all_reduce(Tensor& x, Reduction reduction) override {
    return traced(Collective::all_reduce, [&] { return inner_->all_reduce(x, reduction); });
  }
  Handle all_gather_v(const Tensor& part, Tensor& whole, const std::vector<int64_t>& rows) override {
    return traced(Collective::all_gather, [&] { return inner_->all_gather_v(part, whole, rows); });
  }
  Handle reduce_scatter_v(const Tensor& whole, Tensor& part, const std::vector<int64_t>& rows) override {
    return traced(Collective::reduce_scatter, [&] { return inner_->reduce_scatter_v(whole, part, rows); });
  }
  Handle all_to_all_v(const Tensor& send, const std::vector<int64_t>& send_rows, Tensor& receive,
                      const std::vector<int64_t>& receive_rows, Counted counted) override {
    return traced(Collective::all_to_all_v,
                  [&] { return inner_->all_to_all_v(send, send_rows, receive, receive_rows, counted); });
  }
  Handle broadcast(Tensor& x, int root) override {
    return traced(Collective::broadcast, [&] { return inner_->broadcast(x, root); });
  }
  Handle send(const Tensor& x, int to) override {
    return traced(Collective::send, [&] { return inner_->send(x, to); });
  }
  Handle receive(Tensor& x, int from) override {
    return traced(Collective::receive, [&] { return inner_->receive(x, from); });
  }
  void barrier() override { inner_->barrier(); }

 private:
  template <class Call>
  Handle traced(Collective op, const Call& call) {
    Event event{.kind = Event::Kind::communication,
                .name = to_string(op),
                .category = axis(),
                .begin = EventClock::now(),
                .end = {}};
    return Handle(std::make_unique<TracedCall>(call(), std::move(event), log_));
  }

  std::unique_ptr<Communicator> inner_;
  EventLog& log_;
};

}  // namespace

std::unique_ptr<Communicator> TracingCommunicatorFactory::make(std::string axis, const std::vector<int>& ranks) {
  auto inner = factory_.make(std::move(axis), ranks);
  if (inner->size() == 1) return inner;
  return std::make_unique<TracedCommunicator>(std::move(inner), log_);
}

}  // namespace parallel
