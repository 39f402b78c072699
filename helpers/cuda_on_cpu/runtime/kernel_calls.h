// Kernels that a program has as void*.
#pragma once
#include "../include/cuda_on_cpu/kernel_calls.h"

namespace cuda_on_cpu {

const ErasedKernel* find_kernel(const void* address);  // null if it is none

}  // namespace cuda_on_cpu
