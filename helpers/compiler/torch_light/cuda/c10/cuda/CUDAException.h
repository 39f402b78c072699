// C10_CUDA_CHECK and C10_CUDA_KERNEL_LAUNCH_CHECK, as in PyTorch's header of this name.
#pragma once

#include <cuda_runtime.h>

#include <torch_light/tensor.h>

namespace torch_light {
inline void check_cuda(cudaError_t error, const char* file, int line) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // this error is reported now; it must not meet the next check
  raise_all("", "CUDA error: ", cudaGetErrorString(error), " (", cudaGetErrorName(error),
            "), noticed at ", file, ", line ", line);
}
}  // namespace torch_light

#define C10_CUDA_CHECK(EXPR) ::torch_light::check_cuda((EXPR), __FILE__, __LINE__)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
