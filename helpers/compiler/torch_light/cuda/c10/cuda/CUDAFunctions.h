// Questions about devices, as in PyTorch's header of this name.
#pragma once

#include <c10/cuda/CUDAException.h>

namespace c10::cuda {

inline DeviceIndex device_count() {
  int count;
  C10_CUDA_CHECK(cudaGetDeviceCount(&count));
  return static_cast<DeviceIndex>(count);
}

inline DeviceIndex current_device() {
  int device;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  return static_cast<DeviceIndex>(device);
}

inline void set_device(DeviceIndex device) { C10_CUDA_CHECK(cudaSetDevice(device)); }
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

}  // namespace c10::cuda
