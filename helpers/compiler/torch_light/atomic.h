// gpuAtomicAdd, PyTorch's name for atomicAdd, for the types that have one.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ inline float gpuAtomicAdd(float* address, float value) {
  return atomicAdd(address, value);
}
__device__ inline double gpuAtomicAdd(double* address, double value) {
  return atomicAdd(address, value);
}
__device__ inline int32_t gpuAtomicAdd(int32_t* address, int32_t value) {
  return atomicAdd(address, value);
}
__device__ inline void gpuAtomicAdd(int64_t* address, int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(address), (unsigned long long)value);
}
__device__ inline at::Half gpuAtomicAdd(at::Half* address, at::Half value) {
  __half old = atomicAdd(reinterpret_cast<__half*>(address), reinterpret_cast<__half&>(value));
  return reinterpret_cast<at::Half&>(old);
}
__device__ inline at::BFloat16 gpuAtomicAdd(at::BFloat16* address, at::BFloat16 value) {
  __nv_bfloat16 old = atomicAdd(reinterpret_cast<__nv_bfloat16*>(address),
                                reinterpret_cast<__nv_bfloat16&>(value));
  return reinterpret_cast<at::BFloat16&>(old);
}
template <class T>
__device__ inline void gpuAtomicAddNoReturn(T* address, T value) {
  gpuAtomicAdd(address, value);
}
