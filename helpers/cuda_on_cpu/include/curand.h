// cuRAND's generators for the host's calls: XORWOW, Philox-4x32-10 and Sobol points of 32 bits, in
// cuRAND's own order of threads (libraries/curand.cpp).
#pragma once
#define CURAND_H_  // others' headers ask for it
#include <cstddef>

#include "cuda_on_cpu/runtime.h"
#include "library_types.h"

#define CURAND_VER_MAJOR 10
#define CURAND_VER_MINOR 4
#define CURAND_VER_PATCH 0
#define CURAND_VERSION 10400

typedef struct curandGenerator_st* curandGenerator_t;

enum curandStatus_t {
    CURAND_STATUS_SUCCESS = 0,
    CURAND_STATUS_VERSION_MISMATCH = 100,
    CURAND_STATUS_NOT_INITIALIZED = 101,
    CURAND_STATUS_ALLOCATION_FAILED = 102,
    CURAND_STATUS_TYPE_ERROR = 103,
    CURAND_STATUS_OUT_OF_RANGE = 104,
    CURAND_STATUS_LENGTH_NOT_MULTIPLE = 105,
    CURAND_STATUS_DOUBLE_PRECISION_REQUIRED = 106,
    CURAND_STATUS_LAUNCH_FAILURE = 201,
    CURAND_STATUS_PREEXISTING_FAILURE = 202,
    CURAND_STATUS_INITIALIZATION_FAILED = 203,
    CURAND_STATUS_ARCH_MISMATCH = 204,
    CURAND_STATUS_INTERNAL_ERROR = 999,
};
enum curandRngType_t {
    CURAND_RNG_PSEUDO_DEFAULT = 100,
    CURAND_RNG_PSEUDO_XORWOW = 101,
    CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161,
    CURAND_RNG_QUASI_DEFAULT = 200,
    CURAND_RNG_QUASI_SOBOL32 = 201,
};
enum curandOrdering_t {
    CURAND_ORDERING_PSEUDO_BEST = 100,
    CURAND_ORDERING_PSEUDO_DEFAULT = 101,
    CURAND_ORDERING_PSEUDO_LEGACY = 103,
    CURAND_ORDERING_QUASI_DEFAULT = 201,
};

#define CUDA_ON_CPU_RAND CUDA_ON_CPU_API curandStatus_t
CUDA_ON_CPU_RAND curandGetVersion(int*);
CUDA_ON_CPU_RAND curandCreateGenerator(curandGenerator_t*, curandRngType_t);
CUDA_ON_CPU_RAND curandCreateGeneratorHost(curandGenerator_t*, curandRngType_t);
CUDA_ON_CPU_RAND curandDestroyGenerator(curandGenerator_t);
CUDA_ON_CPU_RAND curandSetStream(curandGenerator_t, cudaStream_t);
CUDA_ON_CPU_RAND curandSetPseudoRandomGeneratorSeed(curandGenerator_t, unsigned long long seed);
CUDA_ON_CPU_RAND curandSetGeneratorOffset(curandGenerator_t, unsigned long long offset);
CUDA_ON_CPU_RAND curandSetGeneratorOrdering(curandGenerator_t, curandOrdering_t);
CUDA_ON_CPU_RAND curandSetQuasiRandomGeneratorDimensions(curandGenerator_t, unsigned dimensions);
CUDA_ON_CPU_RAND curandGenerateSeeds(curandGenerator_t);
CUDA_ON_CPU_RAND curandGenerate(curandGenerator_t, unsigned* out, std::size_t n);
CUDA_ON_CPU_RAND curandGenerateLongLong(curandGenerator_t, unsigned long long* out, std::size_t n);
CUDA_ON_CPU_RAND curandGenerateUniform(curandGenerator_t, float* out, std::size_t n);
CUDA_ON_CPU_RAND curandGenerateUniformDouble(curandGenerator_t, double* out, std::size_t n);
CUDA_ON_CPU_RAND curandGenerateNormal(curandGenerator_t, float* out, std::size_t n, float mean,
                                      float deviation);
CUDA_ON_CPU_RAND curandGenerateNormalDouble(curandGenerator_t, double* out, std::size_t n,
                                            double mean, double deviation);
CUDA_ON_CPU_RAND curandGenerateLogNormal(curandGenerator_t, float* out, std::size_t n, float mean,
                                         float deviation);
CUDA_ON_CPU_RAND curandGenerateLogNormalDouble(curandGenerator_t, double* out, std::size_t n,
                                               double mean, double deviation);
#undef CUDA_ON_CPU_RAND
