#include "tensor/cuda/check.h"

#include "tensor/error.h"

namespace tensor::cuda {

void cuda_failed(const char* file, int line, const char* call, cudaError_t status) {
  throw InternalError(fmt::format("{}:{}: {} failed: {} ({}).", file, line, call, cudaGetErrorString(status),
                                  cudaGetErrorName(status)));
}

void cublas_failed(const char* file, int line, const char* call, cublasStatus_t status) {
  throw InternalError(fmt::format("{}:{}: {} failed: {} ({}).", file, line, call, cublasLtGetStatusString(status),
                                  cublasLtGetStatusName(status)));
}

}  // namespace tensor::cuda
