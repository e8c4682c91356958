#pragma once
/// One device seen as a stream: work is queued in order, and the host may read a result only after synchronize().
/// On a CPU every call returns when done; on a GPU it returns when queued.

#include <memory>
#include <string>

#include "tensor/pool.h"
#include "tensor/tensor.h"

namespace tensor {

enum class DeviceKind { cpu, cuda, paper };

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  virtual std::string describe() const = 0;  ///< "cpu, 2 threads, OpenBLAS 0.3.21 SkylakeX (openmp)"

  Tensor allocate(Shape shape, Dtype dtype, MemoryCategory category);  ///< contents are undefined
  Pool& pool() { return *pool_; }

  virtual void copy_from_host(const void* host, Tensor& to) = 0;  ///< `to` contiguous; host memory is free on return
  virtual void copy_to_host(const Tensor& from, void* host) = 0;  ///< returns when the bytes have arrived
  virtual void copy(const Tensor& from, Tensor& to) = 0;          ///< same shape and dtype; rows may lie apart
  virtual void zero(Tensor& x) = 0;
  virtual void synchronize() = 0;

  /// Dense peak in FLOP/s for matrix products of this dtype (the denominator of MFU), measured once, in well under
  /// 0.1 s, where no table knows it.
  virtual double peak_flops(Dtype dtype) = 0;

 protected:
  explicit Device(std::unique_ptr<Pool> pool) : pool_(std::move(pool)) {}

 private:
  std::unique_ptr<Pool> pool_;
};

}  // namespace tensor
