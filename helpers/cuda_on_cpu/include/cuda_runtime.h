// CUDA's language and runtime API for g++ and clang: what nvcc includes before every .cu file.
// With PyTorch's full headers, include those first (they ask whether __CUDA_ARCH__ is defined).
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <climits>
#include <cfloat>
#include <cstdint>

// Host and device are the same machine here, so most of CUDA's words mean nothing ...
#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
// ... but one: a block is run by one operating-system thread, which therefore owns its memory.
#define __shared__ static thread_local

#include "cuda_on_cpu/launch.h"
#include "cuda_on_cpu/sync.h"
