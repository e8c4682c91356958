#include "tensor/cuda/stream.h"

#include "tensor/cuda/check.h"

namespace tensor::cuda {

// Non-blocking: the legacy default stream, which libraries may use, does not order itself with ours.
Stream::Stream() { CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
Stream::~Stream() { cudaStreamDestroy(stream_); }
void Stream::synchronize() const { CUDA_CHECK(cudaStreamSynchronize(stream_)); }

Event::Event() { CUDA_CHECK(cudaEventCreate(&event_)); }
Event::~Event() { cudaEventDestroy(event_); }
void Event::record(const Stream& stream) { CUDA_CHECK(cudaEventRecord(event_, stream.get())); }
void Event::make_wait(const Stream& stream) const { CUDA_CHECK(cudaStreamWaitEvent(stream.get(), event_, 0)); }
void Event::synchronize() const { CUDA_CHECK(cudaEventSynchronize(event_)); }

float Event::ms_since(const Event& earlier) const {
  float ms = 0;
  CUDA_CHECK(cudaEventElapsedTime(&ms, earlier.event_, event_));
  return ms;
}

}  // namespace tensor::cuda
