// Work on another GPU until the end of the scope, as in PyTorch's header of this name, which
// includes the other two as well.
#pragma once

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace c10::cuda {

class OptionalCUDAGuard {
 public:
  explicit OptionalCUDAGuard(Device device) { go_to(device); }
#ifdef TORCH_LIGHT_STD
  explicit OptionalCUDAGuard(optional<Device> device) {
    if (device) go_to(*device);
  }
#endif
  ~OptionalCUDAGuard() {
    if (original_ >= 0) cudaSetDevice(original_);
  }
  OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
  OptionalCUDAGuard& operator=(const OptionalCUDAGuard&) = delete;

 private:
  void go_to(Device device) {
    if (!device.has_index()) return;
    C10_CUDA_CHECK(cudaGetDevice(&original_));
    if (device.index() != original_) C10_CUDA_CHECK(cudaSetDevice(device.index()));
  }
  int original_ = -1;
};

class CUDAGuard : public OptionalCUDAGuard {
 public:
  explicit CUDAGuard(Device device) : OptionalCUDAGuard(check(device)) {}
  explicit CUDAGuard(DeviceIndex index) : OptionalCUDAGuard(Device(kCUDA, index)) {}

 private:
  static Device check(Device device) {
    TORCH_CHECK(device.is_cuda(), "CUDAGuard expected a CUDA device, got ", device);
    return device;
  }
};

}  // namespace c10::cuda

namespace at::cuda {
using c10::cuda::CUDAGuard;
using c10::cuda::OptionalCUDAGuard;
}  // namespace at::cuda
