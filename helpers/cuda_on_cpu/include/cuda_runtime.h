// CUDA's language and runtime API for g++ and clang: what nvcc includes before every .cu file.
// With PyTorch's full headers, include those first (they ask whether __CUDA_ARCH__ is defined).
#pragma once
// What CUDA's own headers define, and others' headers ask for.
#define __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_API_H__
#define __DRIVER_TYPES_H__
#define __VECTOR_TYPES_H__
#define __DEVICE_LAUNCH_PARAMETERS_H__

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cfloat>
#include <climits>
#include <cstdint>
#include <initializer_list>
#include <utility>

// Host and device are the same machine here, so most of CUDA's words mean nothing ...
#if defined(CUDA_ON_CPU_CHECK)
// noinline, or a thread begins amid one of its basic blocks. flatten (what the kernel calls is
// inlined), because GCC tells of no structure that is loaded to be an argument of a call, and of
// none that is stored as its result.
#define __global__ __attribute__((noinline, flatten))
#else
#define __global__
#endif
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
// What of a string is of the host alone, and where its code for the device begins and ends (see
// mark_spaces in spaces.py).
#define CUDA_ON_CPU_NOT_FOR_DEVICE(sentence) __attribute__((deprecated(sentence)))
#define CUDA_ON_CPU_DEVICE_BEGIN \
    _Pragma("GCC diagnostic push")                                           \
        _Pragma("GCC diagnostic error \"-Wdeprecated-declarations\"") CUDA_ON_CPU_CONVERSIONS
// Where a float becomes an integer without a word is for the compiler to find: see integers.py.
#define CUDA_ON_CPU_CONVERSIONS _Pragma("GCC diagnostic error \"-Wfloat-conversion\"")
#define CUDA_ON_CPU_DEVICE_END _Pragma("GCC diagnostic pop")
// ... but one: a block is run by one operating-system thread, which therefore owns its memory.
// Arrays are aligned for vectors, as nvcc does it. (GCC lowers what a type asks for to what is said
// here; CUDA's types ask for 128 bytes at most.)
#define __shared__ __attribute__((aligned(128))) static thread_local

#include "cuda_on_cpu/atomics.h"
#include "cuda_on_cpu/device.h"
#include "cuda_on_cpu/end_of_process.h"
#include "cuda_on_cpu/host_api.h"
#include "cuda_on_cpu/host_calls.h"
#include "cuda_on_cpu/math.h"
#include "cuda_on_cpu/ptx.h"
#include "cuda_on_cpu/shared_address.h"
#include "cuda_on_cpu/sync.h"
#include "cuda_on_cpu/volatile.h"
#include "cuda_on_cpu/warp.h"

#include "assert.h"

// Code between #if __CUDA_ARCH__ >= 900 and #endif is left out: it mostly speaks of clusters and TMA.
#if !defined(__CUDA_ARCH__)
#define __CUDA_ARCH__ 800
#endif
// And this is what a string asks that wants to know whether it is read as CUDA.
#if !defined(__CUDACC__)
#define __CUDACC__ 1
#define __NVCC__ 1
#endif
