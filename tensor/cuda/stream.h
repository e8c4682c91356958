#pragma once
/// Owners of a CUDA stream and of a CUDA event, on the device that is current when they are made.

#include <cuda_runtime.h>

namespace tensor::cuda {

/// A queue of work that runs in order and beside other streams.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  void synchronize() const;  ///< returns when everything queued so far is done

 private:
  cudaStream_t stream_ = nullptr;
};

/// A mark in a stream, which the host or another stream can wait for.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream);
  void make_wait(const Stream& stream) const;  ///< later work of `stream` starts only after this mark
  void synchronize() const;
  float ms_since(const Event& earlier) const;  ///< both recorded and done

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace tensor::cuda
