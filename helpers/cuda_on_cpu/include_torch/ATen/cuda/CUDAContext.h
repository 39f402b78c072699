// PyTorch's current stream and the properties of the current device.
#pragma once
#include "../../c10/cuda/CUDAFunctions.h"
#include "../../c10/cuda/CUDAStream.h"

namespace at {
namespace cuda {
inline cudaDeviceProp* getDeviceProperties(int device) {
    static cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline int warp_size() { return 32; }
inline bool is_available() { return true; }
}  // namespace cuda
}  // namespace at
