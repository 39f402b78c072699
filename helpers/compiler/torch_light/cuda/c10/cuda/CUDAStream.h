// The stream that PyTorch works on, as in PyTorch's header of this name.
#pragma once

#include <cuda_runtime.h>

#include <torch_light/tensor.h>

namespace c10::cuda {

class CUDAStream {
 public:
  explicit CUDAStream(cudaStream_t stream) : stream_(stream) {}
  cudaStream_t stream() const { return stream_; }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_;
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) {
  return CUDAStream(static_cast<cudaStream_t>(torch_light::current_cuda_stream(device)));
}

}  // namespace c10::cuda

namespace at::cuda {
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
}  // namespace at::cuda
