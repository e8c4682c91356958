#pragma once
/// Failures of the CUDA libraries become errors that name the call.

#include <cublasLt.h>
#include <cuda_runtime.h>

namespace tensor::cuda {

[[noreturn]] void cuda_failed(const char* file, int line, const char* call, cudaError_t status);
[[noreturn]] void cublas_failed(const char* file, int line, const char* call, cublasStatus_t status);

}  // namespace tensor::cuda

#define CUDA_CHECK(call)                                                                \
  do {                                                                                  \
    if (const cudaError_t cuda_check_status = (call); cuda_check_status != cudaSuccess) \
      ::tensor::cuda::cuda_failed(__FILE__, __LINE__, #call, cuda_check_status);        \
  } while (false)

#define CUBLAS_CHECK(call)                                                                               \
  do {                                                                                                   \
    if (const cublasStatus_t cublas_check_status = (call); cublas_check_status != CUBLAS_STATUS_SUCCESS) \
      ::tensor::cuda::cublas_failed(__FILE__, __LINE__, #call, cublas_check_status);                     \
  } while (false)
