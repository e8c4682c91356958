#include "parallel/mpi_call.h"

#include <algorithm>

#include "parallel/mpi_check.h"

namespace parallel {

void MpiProgress::remove(const MpiCall& call) { std::erase(calls_, &call); }

void MpiProgress::advance_all() {
  for (MpiCall* call : calls_) call->advance();
}

MpiCall::MpiCall(MpiProgress& progress, std::vector<Step> steps, tensor::Tensor scratch)
    : progress_(progress), steps_(std::move(steps)), scratch_(std::move(scratch)) {
  progress_.advance_all();
  advance();
  progress_.add(*this);
}

MpiCall::~MpiCall() { progress_.remove(*this); }

void MpiCall::wait() {
  while (!advance()) progress_.advance_all();
}

bool MpiCall::advance() {
  for (;;) {
    int have_arrived = 0;
    MPI_CHECK(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &have_arrived, MPI_STATUSES_IGNORE));
    if (!have_arrived) return false;
    requests_.clear();
    if (num_started_ == steps_.size()) return true;
    steps_[num_started_++](requests_);
  }
}

void MpiMessages::send(Requests& requests, const void* data, int64_t bytes, int to) const {
  for (int64_t begin = 0; begin < bytes; begin += max_bytes) {
    const int count = static_cast<int>(std::min(max_bytes, bytes - begin));
    MPI_CHECK(MPI_Isend(static_cast<const std::byte*>(data) + begin, count, MPI_BYTE, to, tag, comm,
                        &requests.emplace_back(MPI_REQUEST_NULL)));
  }
}

void MpiMessages::receive(Requests& requests, void* data, int64_t bytes, int from) const {
  for (int64_t begin = 0; begin < bytes; begin += max_bytes) {
    const int count = static_cast<int>(std::min(max_bytes, bytes - begin));
    MPI_CHECK(MPI_Irecv(static_cast<std::byte*>(data) + begin, count, MPI_BYTE, from, tag, comm,
                        &requests.emplace_back(MPI_REQUEST_NULL)));
  }
}

}  // namespace parallel
