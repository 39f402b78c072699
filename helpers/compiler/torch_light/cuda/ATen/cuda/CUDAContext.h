// Streams, and what the GPU is like, as in PyTorch's header of this name (without the libraries).
#pragma once

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <map>

namespace at::cuda {

inline cudaDeviceProp* getDeviceProperties(int device) {
  static std::map<int, cudaDeviceProp> known;  // asking the driver takes a millisecond
  auto [found, is_new] = known.try_emplace(device);
  if (is_new) C10_CUDA_CHECK(cudaGetDeviceProperties(&found->second, device));
  return &found->second;
}

inline cudaDeviceProp* getCurrentDeviceProperties() {
  int device;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  return getDeviceProperties(device);
}

}  // namespace at::cuda
