// Questions about devices: there is one, number 0.
#pragma once
#include "CUDAException.h"

namespace c10 {
namespace cuda {
inline int device_count() { return 1; }
inline int current_device() { return 0; }
inline void set_device(int device) { C10_CUDA_CHECK(cudaSetDevice(device)); }
inline void device_synchronize() {}
}  // namespace cuda
}  // namespace c10
