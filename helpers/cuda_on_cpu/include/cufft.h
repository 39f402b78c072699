// cuFFT: plans of one to three dimensions (libraries/cufft.cpp, over PyTorch's operators for the
// CPU). No transform divides by anything.
#pragma once
#define _CUFFT_H_  // others' headers ask for it
#include <cstddef>

#include "cuComplex.h"
#include "cuda_on_cpu/runtime.h"
#include "library_types.h"

#define CUFFT_VER_MAJOR 12
#define CUFFT_VER_MINOR 0
#define CUFFT_VER_PATCH 0
#define CUFFT_VERSION 12000
#define CUFFT_FORWARD -1
#define CUFFT_INVERSE 1

typedef int cufftHandle;
typedef float cufftReal;
typedef double cufftDoubleReal;
typedef cuComplex cufftComplex;
typedef cuDoubleComplex cufftDoubleComplex;

enum cufftResult {
    CUFFT_SUCCESS = 0x0,
    CUFFT_INVALID_PLAN = 0x1,
    CUFFT_ALLOC_FAILED = 0x2,
    CUFFT_INVALID_TYPE = 0x3,
    CUFFT_INVALID_VALUE = 0x4,
    CUFFT_INTERNAL_ERROR = 0x5,
    CUFFT_EXEC_FAILED = 0x6,
    CUFFT_SETUP_FAILED = 0x7,
    CUFFT_INVALID_SIZE = 0x8,
    CUFFT_UNALIGNED_DATA = 0x9,
    CUFFT_INVALID_DEVICE = 0xB,
    CUFFT_NO_WORKSPACE = 0xD,
    CUFFT_NOT_IMPLEMENTED = 0xE,
    CUFFT_NOT_SUPPORTED = 0x10,
};
enum cufftType {
    CUFFT_R2C = 0x2a,
    CUFFT_C2R = 0x2c,
    CUFFT_C2C = 0x29,
    CUFFT_D2Z = 0x6a,
    CUFFT_Z2D = 0x6c,
    CUFFT_Z2Z = 0x69,
};

#define CUDA_ON_CPU_FFT CUDA_ON_CPU_API cufftResult
CUDA_ON_CPU_FFT cufftGetVersion(int*);
CUDA_ON_CPU_FFT cufftCreate(cufftHandle*);
CUDA_ON_CPU_FFT cufftDestroy(cufftHandle);
CUDA_ON_CPU_FFT cufftSetStream(cufftHandle, cudaStream_t);
CUDA_ON_CPU_FFT cufftPlan1d(cufftHandle*, int nx, cufftType, int batch);
CUDA_ON_CPU_FFT cufftPlan2d(cufftHandle*, int nx, int ny, cufftType);
CUDA_ON_CPU_FFT cufftPlan3d(cufftHandle*, int nx, int ny, int nz, cufftType);
CUDA_ON_CPU_FFT cufftPlanMany(cufftHandle*, int rank, int* n, int* inembed, int istride, int idist,
                              int* onembed, int ostride, int odist, cufftType, int batch);
CUDA_ON_CPU_FFT cufftMakePlan1d(cufftHandle, int nx, cufftType, int batch, std::size_t* work_bytes);
CUDA_ON_CPU_FFT cufftMakePlan2d(cufftHandle, int nx, int ny, cufftType, std::size_t* work_bytes);
CUDA_ON_CPU_FFT cufftMakePlan3d(cufftHandle, int nx, int ny, int nz, cufftType,
                                std::size_t* work_bytes);
CUDA_ON_CPU_FFT cufftMakePlanMany(cufftHandle, int rank, int* n, int* inembed, int istride,
                                  int idist, int* onembed, int ostride, int odist, cufftType,
                                  int batch, std::size_t* work_bytes);
CUDA_ON_CPU_FFT cufftGetSize(cufftHandle, std::size_t* work_bytes);
CUDA_ON_CPU_FFT cufftSetAutoAllocation(cufftHandle, int automatic);
CUDA_ON_CPU_FFT cufftSetWorkArea(cufftHandle, void*);
CUDA_ON_CPU_FFT cufftExecC2C(cufftHandle, cufftComplex* in, cufftComplex* out, int direction);
CUDA_ON_CPU_FFT cufftExecR2C(cufftHandle, cufftReal* in, cufftComplex* out);
CUDA_ON_CPU_FFT cufftExecC2R(cufftHandle, cufftComplex* in, cufftReal* out);
CUDA_ON_CPU_FFT cufftExecZ2Z(cufftHandle, cufftDoubleComplex* in, cufftDoubleComplex* out,
                             int direction);
CUDA_ON_CPU_FFT cufftExecD2Z(cufftHandle, cufftDoubleReal* in, cufftDoubleComplex* out);
CUDA_ON_CPU_FFT cufftExecZ2D(cufftHandle, cufftDoubleComplex* in, cufftDoubleReal* out);
#undef CUDA_ON_CPU_FFT
