#include "tensor/cpu/cpu_device.h"

#include <cblas.h>
#include <sched.h>

#include <thread>

#include "tensor/cpu/huge_page_source.h"
#include "tensor/cpu/threads.h"

namespace tensor::cpu {

namespace {

// What openblas_get_parallel() answers.
constexpr int kSequentialOpenBlas = 0;
constexpr int kOpenMpOpenBlas = 2;

bool shares_openmp_threads() {
  const int parallel = openblas_get_parallel();
  return parallel == kOpenMpOpenBlas || parallel == kSequentialOpenBlas;
}

/// "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..." -> "0.3.21"
std::string openblas_version() {
  const std::string config = openblas_get_config();
  const size_t begin = config.find(' ');
  if (begin == std::string::npos) return config;
  return config.substr(begin + 1, config.find(' ', begin + 1) - begin - 1);
}

std::string openblas_threads() {
  switch (openblas_get_parallel()) {
    case kOpenMpOpenBlas:
      return "openmp";
    case kSequentialOpenBlas:
      return "sequential";
    default:
      return "pthread build, held to 1 thread as its threads would fight OpenMP's; install the openmp build";
  }
}

/// Below it, one thread copies faster than several wake up.
constexpr int64_t kBytesPerThread = 256 * 1024;

void copy_bytes(const void* from, void* to, int64_t bytes) {
  parallel_for(bytes, kBytesPerThread, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                static_cast<size_t>(end - begin));
  });
}

/// Calls body(row) for every row, `row_bytes` long each, over threads.
template <class Body>
void for_each_row(const Tensor& x, const Body& body) {
  const int64_t row_bytes = std::max<int64_t>(1, x.shape().row_numel() * size_of(x.dtype()));
  parallel_for(x.dim(0), std::max<int64_t>(1, kBytesPerThread / row_bytes), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

char* row_of(const Tensor& x, int64_t row) {
  return static_cast<char*>(x.raw()) + row * x.row_stride() * size_of(x.dtype());
}

}  // namespace

int default_num_threads(int ranks_on_node) {
  CHECK(ranks_on_node >= 1, "{} ranks share a node", ranks_on_node);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool is_known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  const int cores = is_known ? CPU_COUNT(&allowed) : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / ranks_on_node);
}

CpuDevice::CpuDevice(const CpuOptions& options)
    : Device(std::make_unique<Pool>(std::make_unique<HugePageSource>())),
      num_threads_(options.num_threads > 0 ? options.num_threads : default_num_threads(options.ranks_on_node)) {
  omp_set_num_threads(num_threads_);
  openblas_set_num_threads(shares_openmp_threads() ? num_threads_ : 1);
}

std::string CpuDevice::describe() const {
  return fmt::format("cpu, {} thread{}, OpenBLAS {} {} ({})", num_threads_, num_threads_ == 1 ? "" : "s",
                     openblas_version(), openblas_get_corename(), openblas_threads());
}

void CpuDevice::copy_from_host(const void* host, Tensor& to) {
  CHECK(to.is_contiguous(), "a host copy fills a tensor whose rows do not lie apart, unlike {}", to.shape().str());
  copy_bytes(host, to.raw(), to.bytes());
}

void CpuDevice::copy_to_host(const Tensor& from, void* host) {
  const int64_t row_bytes = from.shape().row_numel() * size_of(from.dtype());
  if (from.is_contiguous()) return copy_bytes(from.raw(), host, from.bytes());
  for_each_row(from, [&](int64_t row) {
    std::memcpy(static_cast<char*>(host) + row * row_bytes, row_of(from, row), static_cast<size_t>(row_bytes));
  });
}

void CpuDevice::copy(const Tensor& from, Tensor& to) {
  CHECK(from.shape() == to.shape() && from.dtype() == to.dtype(), "a copy of {} {} has its shape and dtype, not {} {}",
        to_string(from.dtype()), from.shape().str(), to_string(to.dtype()), to.shape().str());
  if (from.is_contiguous() && to.is_contiguous()) return copy_bytes(from.raw(), to.raw(), from.bytes());
  const size_t row_bytes = static_cast<size_t>(from.shape().row_numel() * size_of(from.dtype()));
  for_each_row(from, [&](int64_t row) { std::memcpy(row_of(to, row), row_of(from, row), row_bytes); });
}

void CpuDevice::zero(Tensor& x) {
  if (x.is_contiguous()) {
    parallel_for(x.bytes(), kBytesPerThread, [&](int64_t begin, int64_t end) {
      std::memset(static_cast<char*>(x.raw()) + begin, 0, static_cast<size_t>(end - begin));
    });
    return;
  }
  const size_t row_bytes = static_cast<size_t>(x.shape().row_numel() * size_of(x.dtype()));
  for_each_row(x, [&](int64_t row) { std::memset(row_of(x, row), 0, row_bytes); });
}

double CpuDevice::peak_flops(Dtype dtype) {
  const Dtype computed_in = accumulator_of(dtype);  // bf16 products are made in fp32
  const auto known = peak_flops_.find(computed_in);
  if (known != peak_flops_.end()) return known->second;
  return peak_flops_[computed_in] = measure_peak_flops(computed_in, num_threads_);
}

}  // namespace tensor::cpu
