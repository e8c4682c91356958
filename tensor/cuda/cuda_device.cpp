#include "tensor/cuda/cuda_device.h"

#include <algorithm>
#include <string_view>

#include "tensor/cuda/check.h"

namespace tensor::cuda {
namespace {

class CudaMemory final : public MemorySource {
 public:
  void* map(int64_t bytes) override {
    void* data = nullptr;
    if (cudaMalloc(&data, static_cast<size_t>(bytes)) == cudaSuccess) return data;
    cudaGetLastError();  // the failure is reported here, not by the next call
    size_t free_bytes = 0, total_bytes = 0;
    CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    throw InternalError(
        fmt::format("The GPU has no {} bytes left: {} of its {} are free.\n"
                    "  Fix: use a smaller train.micro_batch_size, or train.recompute = \"full\".",
                    bytes, free_bytes, total_bytes));
  }
  void unmap(void* data, int64_t) override { cudaFree(data); }
};

/// Makes the device current before any member is built on it.
std::unique_ptr<Pool> pool_on(int index) {
  if (index < 0 || index >= num_devices()) {
    throw LayoutError(
        fmt::format("There is no CUDA device {}: this process sees {}.\n"
                    "  Fix: launch no more ranks on a node than it has GPUs, and check nvidia-smi.",
                    index, num_devices()));
  }
  CUDA_CHECK(cudaSetDevice(index));
  return std::make_unique<Pool>(std::make_unique<CudaMemory>());
}

/// Rows of bytes, as the 2D copies of the runtime want them.
struct Pitched {
  size_t pitch, width, height;
};
Pitched pitched(const Tensor& x) {
  const int64_t width = x.shape().row_numel() * size_of(x.dtype());
  const int64_t pitch = x.dim(0) > 1 ? x.row_stride() * size_of(x.dtype()) : width;
  return {static_cast<size_t>(pitch), static_cast<size_t>(width), static_cast<size_t>(x.dim(0))};
}

struct PeakRow {
  std::string_view name;    ///< how the device's name begins
  double bf16, fp32, fp64;  ///< dense FLOP/s as the vendor states them; fp32 without TF32
};
constexpr PeakRow kPeaks[] = {
    {"NVIDIA H200", 989.4e12, 66.9e12, 66.9e12},
    {"NVIDIA H100 80GB HBM3", 989.4e12, 66.9e12, 66.9e12},
    {"NVIDIA A100", 312e12, 19.5e12, 19.5e12},
};

}  // namespace

int num_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

CudaDevice::CudaDevice(int index) : Device(pool_on(index)), index_(index) {
  CUDA_CHECK(cudaGetDeviceProperties(&properties_, index));
  matmul_ = std::make_unique<Matmul>(pool());
}

CudaDevice::~CudaDevice() { cudaStreamSynchronize(stream_.get()); }

std::string CudaDevice::describe() const {
  return fmt::format("cuda {}, {}, {} SMs, {:.1f} GiB, compute capability {}.{}", index_, properties_.name,
                     properties_.multiProcessorCount, static_cast<double>(properties_.totalGlobalMem) / (1 << 30),
                     properties_.major, properties_.minor);
}

void CudaDevice::copy_from_host(const void* host, Tensor& to) {
  CHECK(to.is_contiguous(), "{} has rows that lie apart", to.shape().str());
  CUDA_CHECK(cudaMemcpyAsync(to.raw(), host, static_cast<size_t>(to.bytes()), cudaMemcpyHostToDevice, stream_.get()));
  stream_.synchronize();  // pinned memory would otherwise still be read after return
}

void CudaDevice::copy_to_host(const Tensor& from, void* host) {
  if (from.numel() > 0) {
    const Pitched x = pitched(from);
    CUDA_CHECK(cudaMemcpy2DAsync(host, x.width, from.raw(), x.pitch, x.width, x.height, cudaMemcpyDeviceToHost,
                                 stream_.get()));
  }
  stream_.synchronize();
}

void CudaDevice::copy(const Tensor& from, Tensor& to) {
  CHECK(from.shape() == to.shape() && from.dtype() == to.dtype(), "{} {} and {} {} are alike", to_string(from.dtype()),
        from.shape().str(), to_string(to.dtype()), to.shape().str());
  if (from.numel() == 0) return;
  const Pitched x = pitched(from), y = pitched(to);
  CUDA_CHECK(cudaMemcpy2DAsync(to.raw(), y.pitch, from.raw(), x.pitch, x.width, x.height, cudaMemcpyDeviceToDevice,
                               stream_.get()));
}

void CudaDevice::zero(Tensor& x) {
  if (x.numel() == 0) return;
  const Pitched rows = pitched(x);
  CUDA_CHECK(cudaMemset2DAsync(x.raw(), rows.pitch, 0, rows.width, rows.height, stream_.get()));
}

void CudaDevice::synchronize() { stream_.synchronize(); }

double CudaDevice::peak_flops(Dtype dtype) {
  for (const PeakRow& row : kPeaks) {
    if (!std::string_view(properties_.name).starts_with(row.name)) continue;
    return dtype == Dtype::bf16 ? row.bf16 : dtype == Dtype::fp32 ? row.fp32 : row.fp64;
  }
  const auto [found, is_new] = measured_peaks_.try_emplace(dtype, 0);
  if (is_new) found->second = measure_peak_flops(dtype);
  return found->second;
}

double CudaDevice::measure_peak_flops(Dtype dtype) {
  constexpr int64_t kSize = 2048;
  constexpr int kRepeats = 3;
  Tensor a = allocate({kSize, kSize}, dtype, MemoryCategory::workspace);
  Tensor c = allocate({kSize, kSize}, dtype, MemoryCategory::workspace);
  zero(a);
  float best_ms = 0;
  for (int i = 0; i < kRepeats; ++i) {
    Event begin, end;
    begin.record(stream_);
    matmul_->gemm(a, Transpose::no, a, Transpose::yes, c, Write::overwrite, stream_);
    end.record(stream_);
    end.synchronize();
    const float ms = end.ms_since(begin);
    best_ms = i == 0 ? ms : std::min(best_ms, ms);
  }
  return 2.0 * kSize * kSize * kSize / (best_ms * 1e-3);
}

}  // namespace tensor::cuda
